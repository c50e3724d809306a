import assert from 'node:assert/strict';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type EncodedChunk, EncodeQueue } from '../../packs/packing/encode-queue.js';

/** A chunk whose encoder ends when the test says so. */
class HeldChunk {
  finish!: () => void;
  fail!: (error: Error) => void;
  readonly encoded: Promise<EncodedChunk>;

  constructor(readonly number: number) {
    this.encoded = new Promise((resolve, reject) => {
      this.finish = () => resolve({ codec: 'huffman', stored: Uint8Array.of(number) });
      this.fail = reject;
    });
  }
}

describe('the queue of chunks to encode', () => {
  it('writes in the order of adding, whichever encoder finishes first', async () => {
    const queue = new EncodeQueue(3);
    const chunks = [1, 2, 3].map((number) => new HeldChunk(number));
    const written: number[] = [];
    for (const chunk of chunks) {
      await queue.makeRoom(1, 10);
      queue.add(10, chunk.encoded, async ({ stored }) => void written.push(...stored));
    }
    const drained = queue.drain();
    for (const chunk of [...chunks].reverse()) {
      chunk.finish();
      await nextTurn();
    }
    await drained;
    assert.deepEqual(written, [1, 2, 3]);
  });

  it('has no room beyond its bounds for chunks and bytes, except for any single chunk', async () => {
    for (const [chunksAtOnce, plainBytes] of [
      [1, 10],
      [9, 200 * 1024 * 1024],
    ] as const) {
      const queue = new EncodeQueue(chunksAtOnce);
      const first = new HeldChunk(1);
      await queue.makeRoom(2, 2 ** 40);
      queue.add(plainBytes, first.encoded, async () => undefined);
      let isRoom = false;
      const room = queue.makeRoom(1, plainBytes).then(() => (isRoom = true));
      await nextTurn();
      assert.equal(isRoom, false);
      first.finish();
      await room;
    }
  });

  it('stops at a failure without leaving an encoder at work or a rejection unseen', async () => {
    const queue = new EncodeQueue(4);
    const [failing, other, third] = [new HeldChunk(1), new HeldChunk(2), new HeldChunk(3)];
    for (const chunk of [failing, other, third]) queue.add(1, chunk.encoded, async () => assert.fail('written'));
    failing.fail(new Error('injected'));
    third.fail(new Error('injected too'));
    await assert.rejects(queue.drain(), /injected$/);
    let isSettled = false;
    const abandoned = queue.abandon().then(() => (isSettled = true));
    await nextTurn();
    assert.equal(isSettled, false);
    other.finish();
    await abandoned;
    await queue.drain();
  });
});
