import assert from 'node:assert/strict';
import type { StoreFiles } from '../../engine/environment/store-files.js';
import { RowProvenance } from '../../main-node/pass/pass-member.js';
import { BlockIndex } from '../../main-node/stored-rows/block-index.js';
import { STORED_BLOCK_POSITIONS } from '../../main-node/stored-rows/block-names.js';
import { obstacleOf } from '../../main-node/stored-rows/open-row-store.js';
import { RowStore, type RowsToStore } from '../../main-node/stored-rows/row-store.js';
import type { Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { SHAPE } from './scripted-shadow-model.js';
import { silentLog } from './worker-test-slots.js';

const LAYER_BYTES = [STORED_BLOCK_POSITIONS * 4, STORED_BLOCK_POSITIONS * 8];
const KEY = { store: 'of this test', salt: 'salt' };
const tokensOf = (token: number, blocks: number): number[] =>
  Array.from({ length: blocks * STORED_BLOCK_POSITIONS + 3 }, (_, index) => token + index);

/** Files in memory, on a disk that may be full. */
class MemoryFiles implements StoreFiles {
  readonly files = new Map<string, Uint8Array>();
  readonly partial = new Map<string, Uint8Array>();
  isFull = false;
  isClosed = false;
  /** Holds writes back. */
  gate: Promise<void> = Promise.resolve();

  list = async () => [...this.files].map(([name, { length: bytes }]) => ({ name, bytes, usedMs: 0 }));
  read = async (name: string) => this.files.get(name) ?? null;
  readStart = async (name: string, bytes: number) => this.files.get(name)?.subarray(0, bytes) ?? null;
  touch = async () => undefined;

  async write(name: string, bytes: Uint8Array): Promise<void> {
    await this.gate;
    if (this.isFull) throw new OdmoeError('STORAGE_FULL', 'full');
    this.partial.set(name, bytes);
  }

  async publish(name: string): Promise<void> {
    this.files.set(name, this.partial.get(name) ?? assert.fail(name));
    this.partial.delete(name);
  }

  async replace(): Promise<void> {
    assert.fail('only the opening of a store does this');
  }

  async remove(names: readonly string[]): Promise<void> {
    for (const name of names) {
      this.files.delete(name);
      this.partial.delete(name);
    }
  }

  async close(): Promise<void> {
    this.isClosed = true;
  }
}

describe('the store of rows', () => {
  let files: MemoryFiles;
  let index: BlockIndex;
  let store: RowStore;
  let forks = 0;

  beforeEach(() => {
    forks = 0;
    files = new MemoryFiles();
    index = new BlockIndex(1_000_000);
    store = new RowStore({
      files,
      index,
      key: KEY,
      layerBytes: LAYER_BYTES,
      runtime: new WallRuntime(),
      log: silentLog,
    });
  });

  afterEach(async () => {
    await store.close();
    assert.equal(forks, 0, 'all memory is given back');
    assert.ok(files.isClosed);
    assert.equal(files.partial.size, 0);
    assert.equal(
      [...files.files.values()].reduce((sum, { length }) => sum + length, 0),
      index.bytes,
    );
  });

  function rowsOf(token: number, { blocks = 2, client = 'a', workers = ['w1'] } = {}): RowsToStore {
    const provenance = new RowProvenance();
    for (const [place, worker] of workers.entries()) provenance.took(worker, place * STORED_BLOCK_POSITIONS);
    const fork = (): unknown => {
      forks += 1;
      return {
        readRows: (layer: number, position: number, rows: number) =>
          new Uint8Array((LAYER_BYTES[layer] ?? 0) * (rows / STORED_BLOCK_POSITIONS)).fill(token + layer + position),
        dispose: () => (forks -= 1),
      };
    };
    const tokenIds = tokensOf(token, blocks);
    const sequence = { length: tokenIds.length, fork } as unknown as Sequence;
    return { id: token, client, sequence, tokenIds, provenance };
  }

  const find = (token: number, client = 'a', blocks = 2): string[] =>
    store.find(client, tokensOf(token, blocks), Infinity);

  async function written(rows: RowsToStore): Promise<void> {
    store.keep(rows);
    while (store.held > 0) await new Promise((resolve) => setImmediate(resolve));
  }

  it('gives back what was written, with the workers that took part, to its owner alone', async () => {
    await written(rowsOf(7, { workers: ['w1', 'w2'] }));
    const [first = '', second = ''] = find(7);
    const rows = (await store.read(second, 1)) ?? assert.fail('the block is there');
    assert.deepEqual(rows.workers, [
      ['w1', 0],
      ['w2', STORED_BLOCK_POSITIONS],
    ]);
    assert.equal(rows.sequence, 7);
    assert.ok(rows.layers[1]?.every((byte) => byte === 7 + 1 + STORED_BLOCK_POSITIONS));
    assert.deepEqual((await store.read(first, 0))?.workers, [['w1', 0]]);
    assert.deepEqual(find(7, 'b'), []);
    assert.deepEqual(find(7, ''), []);
    assert.deepEqual(find(7, 'a', 1), [first], 'a shorter prompt has the first block');
    assert.equal(await store.read(first, 1), null, 'at another place it is no block of the prompt');
  });

  it('drops a block of which any byte is changed or missing, and those behind it', async () => {
    await written(rowsOf(7));
    const [first = ''] = find(7);
    const whole = files.files.get(first) ?? assert.fail();
    const damages = [
      ...[...whole.keys()].map((at) => whole.map((byte, place) => (place === at ? byte ^ 1 : byte))),
      ...[0, 5, 20, whole.length - 1].map((length) => whole.slice(0, length)),
      Uint8Array.from([...whole, 0]),
    ];
    for (const [count, damaged] of damages.entries()) {
      files.files.set(first, damaged);
      assert.equal(await store.read(first, 0), null, `damage ${count}`);
      assert.deepEqual(find(7), []);
      await written(rowsOf(7));
      assert.deepEqual(find(7)[0], first);
    }
  });

  it('pauses when the disk is full, and no request notices', async () => {
    files.isFull = true;
    await written(rowsOf(7));
    files.isFull = false;
    await written(rowsOf(8));
    assert.equal(files.files.size, 0, 'nothing is written for some time');
    assert.equal(index.bytes, 0);
  });

  it('gives memory back at once when it is short', async () => {
    let letGo: () => void = assert.fail;
    files.gate = new Promise((resolve) => (letGo = resolve));
    for (const token of [10, 200, 400]) store.keep(rowsOf(token));
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(store.held, 3);
    for (const left of [2, 1, 0]) {
      assert.ok(store.giveUpOne());
      assert.deepEqual([store.held, forks], [left, left]);
    }
    assert.ok(!store.giveUpOne());
    letGo();
    await store.close();
    assert.equal(files.files.size, 0);
  });

  it('removes what a worker that proves to lie took part in, also while it is written', async () => {
    await written(rowsOf(7, { workers: ['honest', 'liar'] }));
    await written(rowsOf(300, { workers: ['honest'] }));
    let letGo: () => void = assert.fail;
    files.gate = new Promise((resolve) => (letGo = resolve));
    store.keep(rowsOf(600, { workers: ['liar'] }));
    await new Promise((resolve) => setImmediate(resolve));
    store.distrust('liar');
    letGo();
    await store.close();
    assert.deepEqual([index.size, files.files.size], [3, 3], 'one block of the first, and both of the second');
  });

  it('does not take part for rows that do not follow from their tokens alone', () => {
    const origin = { packDigest: 'p', slicesDigest: '', arithmetic: 'exact', arithmeticVersion: 1 };
    const fits = { reusesPrefixes: true, shape: SHAPE, origin, decides: false };
    assert.equal(obstacleOf(fits), null);
    assert.ok(obstacleOf({ ...fits, decides: true }) !== null);
    assert.ok(obstacleOf({ ...fits, reusesPrefixes: false }) !== null);
    assert.ok(obstacleOf({ ...fits, origin: { ...origin, arithmetic: 'fast' } }) !== null);
  });
});
