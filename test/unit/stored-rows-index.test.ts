import assert from 'node:assert/strict';
import fc from 'fast-check';
import { BlockIndex, type BlockEntry, type FoundBlock } from '../../main-node/stored-rows/block-index.js';
import { blockNames, ownerOf, STORED_BLOCK_POSITIONS } from '../../main-node/stored-rows/block-names.js';
import { blocksToRead, PositionTime } from '../../main-node/stored-rows/plan-read.js';

const LIMIT_BYTES = 100;

/** Chains of a small tree: "a", "ab", "abc" are the blocks of one prompt. */
const chainOf = (path: string): string[] => [...path].map((_, index) => path.slice(0, index + 1));

const PATH = fc.stringMatching(/^[ab]{1,5}$/);
const STEP = fc.oneof(
  fc.record({ kind: fc.constant('write' as const), path: PATH, bytes: fc.integer({ min: 1, max: 60 }) }),
  fc.record({ kind: fc.constant('touch' as const), path: PATH }),
  fc.record({ kind: fc.constant('remove' as const), path: PATH }),
  fc.record({ kind: fc.constant('distrust' as const), worker: fc.constantFrom('w1', 'w2') }),
);

/** The store as a list, the least recently used block first. */
class Model {
  blocks: BlockEntry[] = [];

  get bytes(): number {
    return this.blocks.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  has = (name: string): boolean => this.blocks.some((block) => block.name === name);

  touch(path: string): void {
    const used = chainOf(path).filter((name) => this.has(name));
    for (const name of used.reverse()) {
      const block = this.blocks.find((one) => one.name === name) ?? assert.fail(name);
      this.blocks = [...this.blocks.filter((one) => one !== block), block];
    }
  }

  remove(name: string): void {
    this.blocks = this.blocks.filter((block) => !block.name.startsWith(name));
  }
}

const entry = (name: string, bytes: number): BlockEntry => ({
  name,
  bytes,
  parent: name.slice(0, -1),
  workers: [name.endsWith('a') ? 'w1' : 'w2'],
});

/** Writes the blocks of the path that are missing, as the store does. */
function write(index: BlockIndex, model: Model, path: string, bytes: number): void {
  const chain = chainOf(path);
  index.touch(chain);
  model.touch(path);
  for (const [block, name] of chain.entries()) {
    if (index.has(name)) continue;
    const before = chain.slice(0, block);
    const gone = index.reserve(bytes, before);
    if (gone === null) {
      const ofChain = model.blocks.filter((one) => before.includes(one.name));
      assert.ok(ofChain.reduce((sum, one) => sum + one.bytes, bytes) > LIMIT_BYTES, 'there is room without the chain');
      return;
    }
    assert.ok(index.bytes <= LIMIT_BYTES, 'unfinished bytes count');
    const expected: string[] = [];
    while (model.bytes + bytes > LIMIT_BYTES) expected.push((model.blocks.shift() ?? assert.fail()).name);
    assert.deepEqual(gone, expected, 'the least recently used go first');
    index.add(entry(name, bytes), chain.slice(0, block + 1));
    model.blocks.push(entry(name, bytes));
    model.touch(name);
  }
}

function assertSame(index: BlockIndex, model: Model): void {
  assert.equal(index.size, model.blocks.length);
  assert.equal(index.bytes, model.bytes);
  assert.ok(index.bytes <= LIMIT_BYTES);
  for (const { name, parent } of model.blocks) {
    assert.ok(index.has(name));
    assert.ok(parent === '' || index.has(parent), `${name} lies without the block before it`);
  }
}

describe('the index of stored blocks', () => {
  it('holds no more than its bytes, lets the least recently used go, and never a block before one that stays', () => {
    fc.assert(
      fc.property(fc.array(STEP, { maxLength: 40 }), (steps) => {
        const index = new BlockIndex(LIMIT_BYTES);
        const model = new Model();
        for (const step of steps) {
          if (step.kind === 'write') write(index, model, step.path, step.bytes);
          else if (step.kind === 'touch') {
            index.touch(chainOf(step.path));
            const whole = index.stored(chainOf(step.path)).at(-1);
            if (whole !== undefined) model.touch(whole);
          } else if (step.kind === 'remove') {
            index.remove(step.path);
            model.remove(step.path);
          } else {
            const tainted = model.blocks.filter(({ workers }) => workers.includes(step.worker));
            index.distrust(step.worker);
            for (const { name } of tainted) model.remove(name);
          }
          assertSame(index, model);
        }
      }),
    );
  });

  it('takes over what lies in a store, without blocks that lack one before them, within its bytes', () => {
    const found = fc.uniqueArray(
      fc.record({ name: PATH, bytes: fc.integer({ min: 1, max: 30 }), usedMs: fc.integer({ min: 0, max: 5 }) }),
      { selector: ({ name }) => name, maxLength: 20 },
    );
    fc.assert(
      fc.property(found, (given) => {
        const blocks = given.map(({ name, bytes, usedMs }): FoundBlock => ({ ...entry(name, bytes), usedMs }));
        const index = new BlockIndex(LIMIT_BYTES);
        const gone = index.takeOver(blocks);
        const names = new Set(blocks.map(({ name }) => name));
        const isWhole = (name: string): boolean => chainOf(name).every((one) => names.has(one));
        for (const { name } of blocks) assert.equal(index.has(name), !gone.includes(name));
        for (const name of names) if (!isWhole(name)) assert.ok(gone.includes(name));
        assert.ok(index.bytes <= LIMIT_BYTES);
        assert.equal(index.size, blocks.length - gone.length);
        for (const { name, parent } of blocks) assert.ok(!index.has(name) || parent === '' || index.has(parent));
        const sum = blocks.filter(({ name }) => isWhole(name)).reduce((bytes, one) => bytes + one.bytes, 0);
        if (sum <= LIMIT_BYTES) assert.equal(index.bytes, sum, 'nothing goes without need');
      }),
    );
  });

  it('ends for headers that name each other, or themselves, as the block before', () => {
    const block = (name: string, parent: string): FoundBlock => ({ name, parent, bytes: 1, workers: [], usedMs: 0 });
    const index = new BlockIndex(LIMIT_BYTES);
    assert.deepEqual(index.takeOver([block('x', 'y'), block('y', 'x'), block('z', 'z')]).sort(), ['x', 'y', 'z']);
    assert.equal(index.size, 0);
  });
});

describe('names of stored blocks', () => {
  const tokens = Array.from({ length: 3 * STORED_BLOCK_POSITIONS + 5 }, (_, index) => index);

  it('follow from the key, the salt and all tokens so far', () => {
    const names = (client: string, salt: string, tokenIds = tokens, most = tokens.length): string[] =>
      blockNames(ownerOf(client, salt), salt, tokenIds, most);
    const own = names('alice', 's');
    assert.equal(own.length, 3);
    assert.deepEqual(names('alice', 's', tokens, 2 * STORED_BLOCK_POSITIONS), own.slice(0, 2));
    const changed = tokens.map((id, index) => (index === STORED_BLOCK_POSITIONS ? id + 1 : id));
    assert.equal(names('alice', 's', changed)[0], own[0]);
    for (const others of [
      names('bob', 's'),
      names('', 's'),
      names('alice', 't'),
      names('alice', 's', changed).slice(1),
    ])
      assert.ok(others.every((name) => !own.includes(name)));
    assert.ok(![ownerOf('alice', 's'), ...own].some((text) => text.includes('alice')));
  });
});

describe('the decision to read stored rows', () => {
  const plan = { blocks: 5, written: 0, most: 1000, readMs: null, runMs: null };

  it('takes the blocks that memory lacks, and none for nothing', () => {
    assert.deepEqual(blocksToRead(plan), [0, 5]);
    assert.deepEqual(blocksToRead({ ...plan, most: 5 * STORED_BLOCK_POSITIONS - 1 }), [0, 4]);
    assert.deepEqual(blocksToRead({ ...plan, written: STORED_BLOCK_POSITIONS + 1 }), [1, 5]);
    assert.deepEqual(blocksToRead({ ...plan, written: 5 * STORED_BLOCK_POSITIONS }), [0, 0]);
    assert.deepEqual(blocksToRead({ ...plan, blocks: 0 }), [0, 0]);
  });

  it('runs the prompt where this is faster', () => {
    assert.deepEqual(blocksToRead({ ...plan, readMs: 2, runMs: 1 }), [0, 0]);
    assert.deepEqual(blocksToRead({ ...plan, readMs: 1, runMs: 2 }), [0, 5]);
  });

  it('follows newer times more', () => {
    const time = new PositionTime();
    assert.equal(time.ms, null);
    time.note(10, 100);
    assert.equal(time.ms, 10);
    time.note(10, 200);
    assert.equal(time.ms, 12.5);
    time.note(0, 7);
    assert.equal(time.ms, 12.5);
    time.forget();
    assert.equal(time.ms, null);
  });
});
