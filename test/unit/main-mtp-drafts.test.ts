import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DraftHead } from '../../engine/generation/draft-head.js';
import { loadDenseWeights, loadResidentExperts } from '../../engine/loading/load-weights.js';
import { type Drafter, MtpDrafts } from '../../main-node/decode/mtp-drafts.js';
import type { Device, Model, Pass, Sequence } from '../../native/index.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { NATIVE_BYTE_TOOLS } from '../../packs/packing/native-tools.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { openTestDevice } from './native-test-model.js';
import { answerRows, memberOf, PassCluster, promptRows } from './pass-cluster.js';
import { configOfFixture, tensorsOfFixture } from './rewritten-experts.js';
import { type TinyTensor, withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';
import { pack } from './tiny-pack.js';

const PROMPT = [1, 5, 9, 200, 31, 77, 120, 176, 297, 95, 56, 72];
const ANSWER = 24;
const DRAFTS = 3;
const PROMPT_ROWS = 5;

/** BF16 has the upper half of an FP32. */
function bf16(values: readonly number[]): Uint8Array {
  const bytes = new Uint8Array(2 * values.length);
  const view = new DataView(bytes.buffer);
  const float = new DataView(new ArrayBuffer(4));
  for (const [index, value] of values.entries()) {
    float.setFloat32(0, value);
    view.setUint16(2 * index, float.getUint16(0), true);
  }
  return bytes;
}

/**
 * GLM-4.5's fixture as a model whose layers add nothing, so that a token alone decides the next one, and a head that copies this: its input is the token's
 * embedding, and norm and LM head are the model's.
 */
function copying(tensors: readonly TinyTensor[], hiddenSize: number): TinyTensor[] {
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const dataOf = (name: string): Uint8Array => byName.get(name)?.data ?? assert.fail(name);
  const copies = new Map([
    ['embed_tokens.weight', 'model.embed_tokens.weight'],
    ['shared_head.norm.weight', 'model.norm.weight'],
    ['shared_head.head.weight', 'lm_head.weight'],
  ]);
  return tensors.map((tensor) => {
    const { name, data } = tensor;
    if (/(o_proj|down_proj)\.weight$/.test(name)) return { ...tensor, data: new Uint8Array(data.length) };
    const own = name.replace('model.layers.4.', '');
    const copied = copies.get(own);
    if (own !== name && copied !== undefined) return { ...tensor, data: dataOf(copied) };
    if (own === 'enorm.weight') return { ...tensor, data: bf16(Array<number>(hiddenSize).fill(1)) };
    if (own !== 'eh_proj.weight') return tensor;
    const identity = Array.from({ length: 2 * hiddenSize * hiddenSize }, (_, index) =>
      index % (2 * hiddenSize) === Math.floor(index / (2 * hiddenSize)) ? 1 : 0,
    );
    return { ...tensor, data: bf16(identity) };
  });
}

const highest = (logits: ArrayLike<number>): number => Array.from(logits).indexOf(Math.max(...Array.from(logits)));

interface Answer {
  tokens: number[];
  passes: number;
  proposed: number;
  accepted: number;
}

/** A greedy answer of a model; with a head the rows of its passes are drafts, too. */
class Answering {
  private readonly sequence: Sequence;
  private readonly pass: Pass;

  constructor(
    model: Model,
    private readonly sizes: { vocabSize: number; hiddenSize: number },
  ) {
    this.sequence = model.createSequence();
    this.pass = model.createPass(PROMPT_ROWS);
  }

  async answer(head: DraftHead | null): Promise<Answer> {
    const known = [...PROMPT];
    const { hiddenSize } = this.sizes;
    const sizes = { hiddenSize, passRows: 2, firstRows: null };
    const drafts =
      head &&
      new MtpDrafts(
        () => head.createDrafter(2),
        sizes,
        () => known,
      );
    const counts = { passes: 0, proposed: 0, accepted: 0 };
    let next = 0;
    for (let first = 0; first < PROMPT.length; first += PROMPT_ROWS) {
      const rows = await this.run(first, PROMPT.slice(first, first + PROMPT_ROWS), drafts);
      next = rows.at(-1) ?? 0;
    }
    while (known.length < PROMPT.length + ANSWER) {
      known.push(next);
      const drafted = (await drafts?.draft(DRAFTS)) ?? [];
      const sampled = await this.run(known.length - 1, [next, ...drafted], drafts);
      counts.passes += 1;
      counts.proposed += drafted.length;
      let row = 0;
      for (; row < drafted.length && drafted[row] === sampled[row]; row += 1) known.push(drafted[row] ?? 0);
      counts.accepted += row;
      next = sampled[row] ?? 0;
    }
    await drafts?.end();
    this.pass.dispose();
    this.sequence.dispose();
    return { tokens: known.slice(PROMPT.length, PROMPT.length + ANSWER), ...counts };
  }

  /** The highest token behind each row. */
  private async run(position: number, tokens: readonly number[], drafts: MtpDrafts | null): Promise<number[]> {
    const { pass, sequence } = this;
    const rows = Int32Array.from(tokens, (_, row) => row);
    await pass.begin(
      [sequence],
      new Int32Array(tokens.length),
      rows.map((row) => position + row),
      Int32Array.from(tokens),
    );
    await pass.forward(null);
    const logits = await pass.logits(rows);
    drafts?.takeStates(position, await pass.states(rows, true));
    const { vocabSize } = this.sizes;
    return [...rows].map((row) => highest(logits.subarray(row * vocabSize, (row + 1) * vocabSize)));
  }
}

describe('main: drafts of a head', () => {
  let device: Device;
  before(() => void (device = openTestDevice()));
  after(() => device.dispose());

  /** Answers with and without the head of the model in `directory`. */
  async function answers(directory: string): Promise<{ plain: Answer; drafted: Answer }> {
    const source = await openModelSource(directory);
    assert.ok(source.draftHead);
    const model = device.createModel(source.shape);
    await loadDenseWeights(model, source, 'bf16');
    await loadResidentExperts(model, source, 'bf16');
    const head = await DraftHead.load(device, source.draftHead, 'bf16');
    const plain = await new Answering(model, source.shape).answer(null);
    const drafted = await new Answering(model, source.shape).answer(head);
    head.dispose();
    model.dispose();
    return { plain, drafted };
  }

  it('are all accepted where the head copies what the model says next, from a checkpoint and from its pack', async () => {
    const { hidden_size: hiddenSize } = configOfFixture('glm45');
    const tensors = copying(await tensorsOfFixture('glm45'), Number(hiddenSize));
    await withTemporaryDirectory(async (directory) => {
      const [checkpoint, packed] = [join(directory, 'checkpoint'), join(directory, 'pack')];
      await writeTinyCheckpoint(checkpoint, tensors, { config: configOfFixture('glm45') });
      await pack(checkpoint, packed, { tools: NATIVE_BYTE_TOOLS, codec: { codec: 'huffman', level: null } });
      for (const from of [checkpoint, packed]) {
        const { plain, drafted } = await answers(from);
        assert.deepEqual(drafted.tokens, plain.tokens);
        assert.equal(plain.passes, ANSWER);
        assert.equal(drafted.passes, ANSWER / (DRAFTS + 1));
        assert.deepEqual([drafted.proposed, drafted.accepted], [DRAFTS * drafted.passes, DRAFTS * drafted.passes]);
      }
    });
  });

  it('change no token, whatever the head says', async () => {
    for (const fixture of ['deepseekv3', 'glmmoedsa', 'glm45', 'qwen3next', 'qwen35moe']) {
      const { plain, drafted } = await answers(join(packageRoot(), 'test', 'fixtures', fixture));
      assert.deepEqual(drafted.tokens, plain.tokens, fixture);
      assert.ok(drafted.proposed > drafted.accepted, fixture);
    }
  });
});

/** A drafter that writes down what it is fed. */
class WritingDrafter implements Drafter {
  readonly fed: string[] = [];
  rows = 0;
  failure: Error | null = null;
  /** Feeding waits for it. */
  open: Promise<void> = Promise.resolve();

  async feed(position: number, states: Float32Array, nextTokens: readonly number[]): Promise<void> {
    await this.open;
    if (this.failure !== null) throw this.failure;
    assert.ok(position <= this.rows);
    for (const [row, token] of nextTokens.entries()) this.fed.push(`${position + row}: ${states[row] ?? -1} ${token}`);
    this.rows = position + nextTokens.length;
  }

  async draft(most: number): Promise<number[]> {
    return Array<number>(most).fill(7);
  }

  dispose(): void {
    this.rows = -1;
  }
}

describe('main: the rows of a head', () => {
  const begin = (
    known: number[],
    passRows = 64,
    firstRows: number | null = null,
  ): { drafter: WritingDrafter; drafts: MtpDrafts } => {
    const drafter = new WritingDrafter();
    const sizes = { hiddenSize: 1, passRows, firstRows };
    return {
      drafter,
      drafts: new MtpDrafts(
        () => drafter,
        sizes,
        () => known,
      ),
    };
  };

  it('are those whose next token is known, and no row of a draft that proved wrong', async () => {
    const known = [10, 11, 12];
    const { drafter, drafts } = begin(known);
    assert.deepEqual(await drafts.draft(2), []);
    drafts.takeStates(0, Float32Array.of(0.5, 1.5));
    drafts.takeStates(2, Float32Array.of(2.5));
    known.push(13);
    assert.deepEqual(await drafts.draft(2), [7, 7]);
    // Of the drafts at 4 and 5 the first proves right.
    drafts.takeStates(3, Float32Array.of(3.5, 4.5, 5.5));
    known.push(14, 15);
    assert.deepEqual(await drafts.draft(1), [7]);
    drafts.takeStates(5, Float32Array.of(6.5));
    known.push(16);
    await drafts.draft(1);
    assert.deepEqual(drafter.fed, ['0: 0.5 11', '1: 1.5 12', '2: 2.5 13', '3: 3.5 14', '4: 4.5 15', '5: 6.5 16']);
    await drafts.end();
    assert.equal(drafter.rows, -1);
  });

  it('begin behind rows of another sequence, and leave rows out that are computed again', async () => {
    const known = [10, 11, 12, 13, 14];
    const { drafter, drafts } = begin(known);
    drafts.takeStates(3, Float32Array.of(3.5));
    assert.deepEqual(await drafts.draft(1), [7]);
    drafts.takeStates(3, Float32Array.of(9.5, 4.5));
    assert.deepEqual(await drafts.draft(1), [7]);
    known.push(15, 16);
    // The state at position 5 has not come.
    assert.deepEqual(await drafts.draft(1), []);
    assert.deepEqual(drafter.fed, ['0: 3.5 14', '1: 4.5 15']);
  });

  it('give their memory back where the answer is preempted, once the head does not run, and begin anew', async () => {
    const known = [10, 11, 12, 13];
    const { drafter, drafts } = begin(known);
    drafts.takeStates(0, Float32Array.of(0.5, 1.5, 2.5));
    let goOn = (): void => undefined;
    drafter.open = new Promise<void>((resolve) => (goOn = resolve));
    const drafted = drafts.draft(1);
    await Promise.resolve();
    drafts.forget();
    await Promise.resolve();
    assert.notEqual(drafter.rows, -1, 'the head runs');
    assert.deepEqual(drafts.rows, { first: Infinity, held: 3, isLeaving: true });
    goOn();
    assert.deepEqual(await drafted, [7]);
    assert.deepEqual(await drafts.draft(1), [], 'its rows are gone');
    assert.equal(drafter.rows, -1);
    drafter.rows = 0;
    drafts.takeStates(0, Float32Array.of(0.5, 1.5, 2.5));
    assert.deepEqual(await drafts.draft(1), [7]);
    assert.deepEqual(drafter.fed.slice(3), ['0: 0.5 11', '1: 1.5 12', '2: 2.5 13']);
    await drafts.end();
  });

  it('begin anew behind an error that has passed', async () => {
    const known = [10, 11, 12];
    const { drafter, drafts } = begin(known);
    drafter.failure = new Error('no worker');
    drafts.takeStates(0, Float32Array.of(0.5, 1.5));
    await assert.rejects(drafts.draft(1), /no worker/);
    await assert.rejects(drafts.draft(1), /no worker/);
    drafts.restart();
    drafter.failure = null;
    drafter.rows = 0;
    known.push(13);
    drafts.takeStates(2, Float32Array.of(2.5));
    assert.deepEqual(await drafts.draft(1), [7]);
    assert.deepEqual(drafter.fed, ['0: 2.5 13']);
    await drafts.end();
  });

  it('fail where drafts are asked for', async () => {
    const { drafter, drafts } = begin([10, 11, 12]);
    drafter.failure = new Error('no memory');
    drafts.takeStates(0, Float32Array.of(0.5));
    await assert.rejects(drafts.draft(1), /no memory/);
    assert.equal(drafter.rows, -1, 'a head that failed is given back at once');
    drafter.failure = null;
    drafts.takeStates(1, Float32Array.of(1.5));
    await assert.rejects(drafts.draft(1), /no memory/);
    assert.deepEqual(drafter.fed, []);
    await drafts.end();
  });

  it('fail where drafts are asked for, too, if they were fed before', async () => {
    const { drafter, drafts } = begin([10, 11, 12], 1);
    drafter.failure = new Error('no memory');
    drafts.takeStates(0, Float32Array.of(0.5));
    await assert.rejects(drafts.draft(1), /no memory/);
    assert.equal(drafter.rows, -1);
    await drafts.end();
  });

  it('are fed where nobody asks for drafts only as whole passes of the head', async () => {
    const known = Array.from({ length: 20 }, (_, token) => token);
    const few = begin(known, 4);
    few.drafts.takeStates(0, Float32Array.of(0, 1, 2));
    await few.drafts.end();
    assert.deepEqual([few.drafter.fed, few.drafter.rows], [[], 0]);
    const enough = begin(known, 4);
    enough.drafts.takeStates(0, Float32Array.of(0, 1, 2));
    enough.drafts.takeStates(3, Float32Array.of(3, 4));
    await enough.drafts.end();
    assert.equal(enough.drafter.fed.length, 5);
  });

  it('are held in a bounded number: of a prompt that comes faster than the head runs the latest are fed', async () => {
    const known = Array.from({ length: 201 }, (_, token) => token);
    const { drafter, drafts } = begin(known, 2);
    let go = (): void => undefined;
    drafter.open = new Promise((resolve) => {
      go = resolve;
    });
    for (let position = 0; position < 200; position += 10) {
      drafts.takeStates(
        position,
        Float32Array.from({ length: 10 }, (_, row) => position + row),
      );
      // The first rows are with the head from here on.
      await Promise.resolve();
    }
    go();
    assert.deepEqual(await drafts.draft(1), [7]);
    assert.equal(drafter.fed.length, 10 + 64);
    assert.deepEqual([drafter.fed[9], drafter.fed[10], drafter.fed.at(-1)], ['9: 9 10', '0: 136 137', '63: 199 200']);
    await drafts.end();
  });

  it('are the last ones alone where the head begins with few, and none before a gap', async () => {
    const known = Array.from({ length: 30 }, (_, token) => token);
    const { drafter, drafts } = begin(known, 4, 3);
    assert.equal(drafts.wantedRows, 3);
    drafts.takeStates(7, Float32Array.of(7, 8, 9));
    drafts.takeStates(26, Float32Array.of(26));
    drafts.takeStates(27, Float32Array.of(27, 28, 29, 30));
    assert.deepEqual(await drafts.draft(1), [7]);
    assert.deepEqual(drafter.fed, ['0: 26 27', '1: 27 28', '2: 28 29']);
    known.push(30, 31, 32);
    drafts.takeStates(29, Float32Array.of(29.5, 30.5, 31.5));
    await drafts.draft(1);
    assert.deepEqual(drafter.fed.slice(3), ['3: 29.5 30', '4: 30.5 31', '5: 31.5 32'], 'it has the rows before');
    // Rows are missing: those before them are of no use.
    known.push(33, 34, 35, 36, 37);
    drafts.takeStates(32, Float32Array.of(32));
    drafts.takeStates(34, Float32Array.of(34, 35, 36));
    await drafts.draft(1);
    assert.deepEqual(drafter.fed.slice(6), ['0: 34 35', '1: 35 36', '2: 36 37']);
    await drafts.end();
  });

  it('are read from a pass only as far as the member wants them', async () => {
    const cluster = new PassCluster();
    const taken: string[] = [];
    const member = (id: number, statesWanted: number) => ({
      ...memberOf(id),
      statesWanted,
      takeStates: (at: number, states: Float32Array) => void taken.push(`${id} at ${at}: ${states.join()}`),
    });
    await cluster.run([
      promptRows(member(7, 2), 5, 4),
      promptRows(member(8, 0), 0, 3),
      answerRows(member(9, 2), 4, [1]),
    ]);
    assert.deepEqual(taken, ['7 at 7: 2,3', '9 at 4: 7']);
  });

  it('come from the passes of main, and only for the members that take them', async () => {
    const cluster = new PassCluster();
    const taken: string[] = [];
    const takes = {
      ...memberOf(7),
      takeStates: (at: number, { length }: Float32Array) => void taken.push(`${at} ${length}`),
    };
    await cluster.run([answerRows(memberOf(8), 4, [1]), promptRows(takes, 2, 3)]);
    assert.deepEqual(taken, ['2 3']);
  });
});
