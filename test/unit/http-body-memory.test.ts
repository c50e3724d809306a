import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { BodyBytes, BodyMemory, SMALL_BODY_BYTES } from '../../http-api/requests/body-memory.js';
import { BodyReader } from '../../http-api/requests/read-body.js';

/** A block has as many bytes as a small body. */
const BLOCK_BYTES = SMALL_BODY_BYTES;

describe('the memory of bodies', () => {
  it('has every byte of a body, which comes in pieces of any size', () => {
    const lengths = fc.array(fc.integer({ min: 0, max: 3 * BLOCK_BYTES }), { maxLength: 5 });
    fc.assert(
      fc.property(lengths, (each) => {
        const body = new BodyBytes(new BodyMemory());
        const pieces = each.map((length, at) => Buffer.alloc(length, at + 1));
        for (const piece of pieces) body.add(piece);
        assert.ok(Buffer.concat(pieces).equals(body.whole()));
      }),
    );
  });

  it('is used again after a body has been refused, and no more of it is given than the limit', () => {
    const memory = new BodyMemory(3 * BLOCK_BYTES);
    const blocks = [memory.take(), memory.take(), memory.take()];
    assert.throws(() => memory.take(), { code: 'QUEUE_FULL', message: /ask again/ });
    memory.giveBack(blocks.slice(1));
    assert.deepEqual(new Set([memory.take(), memory.take()]), new Set(blocks.slice(1)));
    assert.throws(() => memory.take(), { code: 'QUEUE_FULL' });
  });

  it('is given back by every body, whether its JSON is right or it breaks off', async () => {
    const memory = new BodyMemory(BLOCK_BYTES);
    const reader = new BodyReader(memory);
    const text = Buffer.from(JSON.stringify('x'.repeat(2 * BLOCK_BYTES - 2)));
    for (let turn = 0; turn < 2; turn += 1) {
      await reader.read(Readable.from([text]), {}, 1_000_000);
      await assert.rejects(reader.read(Readable.from([text.subarray(1)]), {}, 1_000_000), { code: 'REQUEST_INVALID' });
      const broken = new Readable({ read: () => undefined });
      const read = reader.read(broken, {}, 1_000_000);
      broken.push(text);
      await delay(1);
      broken.destroy();
      await assert.rejects(read, { code: 'REQUEST_INVALID', message: /did not come whole/ });
    }
  });

  it('is free for other uses while no large body is read', () => {
    const memory = new BodyMemory();
    const block = memory.take();
    memory.giveBack([block]);
    assert.notEqual(memory.take(), block);
  });

  it('does not hold the bytes of a picture, which are dropped', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const payload = new Readable({ read: () => undefined });
    const read = new BodyReader().read(payload, {}, 4_000_000);
    payload.push('{"images": ["');
    const arrived: WeakRef<object>[] = [];
    for (let piece = 0; piece < 30; piece += 1) {
      const bytes = Buffer.allocUnsafeSlow(BLOCK_BYTES).fill('A');
      arrived.push(new WeakRef(bytes.buffer));
      payload.push(bytes);
      await delay(1);
    }
    collect();
    const held = arrived.filter((bytes) => bytes.deref() !== undefined).length;
    assert.ok(held <= 2, `${held} of ${arrived.length} pieces are held`);
    payload.push('"]}');
    payload.push(null);
    assert.deepEqual(Object.keys((await read) as object), ['images']);
  });
});
