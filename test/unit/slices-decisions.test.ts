import assert from 'node:assert/strict';
import { DecisionRecord, RECORD_BLOCK_ROWS } from '../../shared/decisions/slices/decision-record.js';
import {
  decideRows,
  decisionBytes,
  SequenceDecisions,
  type DecisionRules,
} from '../../shared/decisions/slices/sequence-decisions.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { routersOf } from '../../shared/decisions/slices/output-weights.js';
import { plainShape } from './plain-shape.js';

const LAYERS = 3;
const EXPERTS = 8;
const PROMPT = 20;
const ROWS = 50;
const shape = plainShape({ expertLayers: LAYERS, experts: EXPERTS });
const { expertsPerToken } = shape;

const RULES: DecisionRules = {
  sequence: {
    cache: { layers: LAYERS, experts: EXPERTS, upperBytes: 4, lowerBytes: 3, capacityBytes: 40 },
    expertsPerToken,
    routing: { kind: 'top-k' },
    lowerFetch: 'wait',
    theta: 0.55,
    missTarget: 0.1,
    start: 'warm',
    seed: 0,
  },
  routers: routersOf(shape),
};

interface Answer {
  readonly experts: Int32Array;
  readonly weights: Float32Array;
  readonly logits: Float32Array;
  readonly scores: Float32Array;
}

/** By layer and row. */
const ANSWERS = Array.from({ length: LAYERS }, (_, layer) =>
  Array.from({ length: ROWS }, (__, row) => answerOf(new SeededRandom(layer * ROWS + row))),
);

function answerOf(random: SeededRandom): Answer {
  const scores = Float32Array.from({ length: EXPERTS }, () => random.fraction());
  const best = [...scores.keys()].sort((left, right) => (scores[right] ?? 0) - (scores[left] ?? 0));
  const experts = Int32Array.from(best.slice(0, expertsPerToken));
  const logits = scores.map((score) => 4 * score);
  return { experts, weights: Float32Array.from(experts, (expert) => scores[expert] ?? 0), logits, scores };
}

/** Runs rows [from, end) as passes of these sizes; returns what each row decided, layer by layer. */
function run(decisions: SequenceDecisions, from: number, end: number, passRows: number): unknown[][] {
  const decided: unknown[][] = [];
  for (let row = from; row < end;) {
    const rows = Math.min(passRows, end - row, decisions.passEnd(row) - row);
    for (let layer = 0; layer < LAYERS; layer += 1) decide(decisions, row, rows, layer, decided);
    row += rows;
  }
  return decided;
}

function decide(decisions: SequenceDecisions, from: number, rows: number, layer: number, into: unknown[][]): void {
  // Rows behind the last of the answers begin with the first one again.
  const answers = Array.from({ length: rows }, (_, row) => ANSWERS[layer]?.[(from + row) % ROWS] ?? assert.fail());
  const joined = (of: 'weights' | 'logits' | 'scores'): Float32Array =>
    Float32Array.from(answers.flatMap((answer) => [...answer[of]]));
  const owners = answers.map((_, index) => ({ decisions, position: from + index }));
  const { experts, weights, readings } = decideRows(RULES, layer, owners, {
    experts: Int32Array.from(answers.flatMap((answer) => [...answer.experts])),
    weights: joined('weights'),
    logits: joined('logits'),
    scores: joined('scores'),
  });
  answers.forEach((_, index) => {
    const range = [index * expertsPerToken, (index + 1) * expertsPerToken] as const;
    (into[from + index] ??= []).push(experts.slice(...range), weights.slice(...range), readings.slice(...range));
  });
}

describe('the decisions of a sequence', () => {
  const whole = run(SequenceDecisions.begin(RULES, PROMPT), 0, ROWS, ROWS);

  it('are both slices for the prompt, and change with the cache after it', () => {
    const readings = (rows: readonly unknown[][]): Set<unknown> =>
      new Set(rows.flat().flatMap((value): unknown[] => (Array.isArray(value) ? value : [])));
    assert.deepEqual([...readings(whole.slice(0, PROMPT))], ['both']);
    assert.equal(readings(whole.slice(PROMPT)).size, 2);
  });

  it('are the same for any division of the prompt into passes', () => {
    for (const passRows of [1, 7, PROMPT]) {
      assert.deepEqual(run(SequenceDecisions.begin(RULES, PROMPT), 0, ROWS, passRows), whole);
    }
  });

  it('come again when rows run again, in passes of any size, and then go on', () => {
    for (const [lost, passRows] of [
      [30, 64],
      [45, 9],
      [10, 4],
    ] as const) {
      const decisions = SequenceDecisions.begin(RULES, PROMPT);
      run(decisions, 0, lost, 16);
      // The memory of the rows was given up.
      assert.equal(decisions.passEnd(0), Math.max(PROMPT, lost));
      assert.deepEqual(run(decisions, 0, ROWS, passRows), whole);
    }
  });

  it('come again after a pass that ended in the middle of its layers', () => {
    const decisions = SequenceDecisions.begin(RULES, PROMPT);
    decide(decisions, 0, 12, 0, []);
    decide(decisions, 0, 12, 1, []);
    run(decisions, 0, PROMPT + 4, 5);
    decide(decisions, PROMPT + 4, 1, 0, []);
    assert.deepEqual(run(decisions, PROMPT + 4, ROWS, 1).slice(PROMPT + 4), whole.slice(PROMPT + 4));
  });

  it('are forgotten when the sequence is cut back, and are then what they were', () => {
    for (const kept of [0, 5, PROMPT, PROMPT + 1, PROMPT + 17]) {
      const decisions = SequenceDecisions.begin(RULES, PROMPT);
      run(decisions, 0, ROWS, 6);
      decisions.cutBack(kept);
      assert.equal(decisions.passEnd(kept), Math.max(PROMPT, kept + 1));
      assert.deepEqual(run(decisions, kept, ROWS, 6).slice(kept), whole.slice(kept), `${kept} rows are kept`);
    }
  });

  it('go on from rows of another prompt that begins alike, and take none of its answer', () => {
    const other = SequenceDecisions.begin(RULES, 9);
    run(other, 0, 15, 9);
    assert.equal(other.decidedPromptRows, 9);
    assert.throws(() => other.promptPart(10), /rows of an answer/);
    const decisions = SequenceDecisions.begin(RULES, PROMPT);
    decisions.beginWith(other.promptPart(9));
    assert.deepEqual(run(decisions, 9, ROWS, 64).slice(9), whole.slice(9));
  });

  it('go on from rows of a long prompt without taking more than a part of a block of them again', () => {
    const prompt = 3 * RECORD_BLOCK_ROWS;
    const end = prompt + 30;
    const long = SequenceDecisions.begin(RULES, prompt);
    const expected = run(long, 0, end, 100);
    for (const rows of [9, RECORD_BLOCK_ROWS, 2 * RECORD_BLOCK_ROWS + 40, prompt - 1]) {
      const part = long.promptPart(rows);
      const choice = part.choice.bind(part);
      let taken = 0;
      part.choice = (row, layer) => {
        taken += 1;
        return choice(row, layer);
      };
      const decisions = SequenceDecisions.begin(RULES, prompt);
      decisions.beginWith(part);
      assert.equal(taken, LAYERS * (rows % RECORD_BLOCK_ROWS));
      assert.deepEqual(run(decisions, rows, end, 300).slice(rows), expected.slice(rows));
      // A prompt that goes on from this one finds the states of its own blocks, too.
      const next = SequenceDecisions.begin(RULES, prompt);
      next.beginWith(decisions.promptPart(prompt - 1));
      assert.deepEqual(run(next, prompt - 1, end, 1).slice(prompt - 1), expected.slice(prompt - 1));
    }
  });

  it('that are cut back to the end of the prompt begin the cache again', () => {
    const prompt = RECORD_BLOCK_ROWS;
    const decisions = SequenceDecisions.begin(RULES, prompt);
    const expected = run(decisions, 0, prompt + 30, 64);
    for (const kept of [prompt, prompt + 12]) {
      decisions.cutBack(kept);
      assert.deepEqual(run(decisions, kept, prompt + 30, 1).slice(kept), expected.slice(kept));
    }
  });

  it('take the memory that is planned for their rows, block by block', () => {
    assert.equal(decisionBytes(RULES, 0), 0);
    const rowBytes = LAYERS * (7 * expertsPerToken + 8);
    for (const rows of [1, RECORD_BLOCK_ROWS, RECORD_BLOCK_ROWS + 1, 600]) {
      const decisions = SequenceDecisions.begin(RULES, 10);
      run(decisions, 0, rows, 7);
      assert.equal(decisions.bytes, decisionBytes(RULES, rows));
      assert.ok(decisions.bytes > rows * rowBytes);
      decisions.cutBack(0);
      assert.ok(decisions.bytes < decisionBytes(RULES, 1));
    }
  });

  it('refuse a row of an answer before the row that it follows', () => {
    const decisions = SequenceDecisions.begin(RULES, 1);
    run(decisions, 0, 1, 1);
    assert.equal(decisions.passEnd(1), 2);
    assert.throws(() => decide(decisions, 1, 2, 0, []), /row of an answer decides once/);
  });
});

describe('the record of decisions', () => {
  const layer = (expert: number): Parameters<DecisionRecord['add']>[2] => ({
    experts: [expert, expert + 1],
    renormalizedWeights: Float32Array.of(0.75, 0.25),
    logitsRange: expert / 3,
    isHigh: [true, expert % 2 === 0],
  });

  it('gives back what was added, whatever its length, and a part is independent', () => {
    const record = new DecisionRecord({ layers: 2, experts: 400, expertsPerToken: 2 });
    for (let row = 0; row < 300; row += 1) for (const at of [0, 1]) record.add(row, at, layer(row + at));
    for (const row of [0, 63, 64, 299]) assert.deepEqual(record.read(row, 1), layer(row + 1));
    const part = record.part(100);
    assert.deepEqual([part.rows, record.rows], [100, 300]);
    part.add(100, 0, layer(7));
    assert.deepEqual([part.read(100, 0), record.read(100, 0)], [layer(7), layer(100)]);
    assert.deepEqual(part.read(99, 1), layer(100));
    record.add(300, 0, layer(300));
    assert.equal(part.rowsOf(0), 101);
    assert.throws(() => part.part(101), /rows that have decided/);
  });

  it('takes rows and layers in order only', () => {
    const record = new DecisionRecord({ layers: 2, experts: 400, expertsPerToken: 2 });
    assert.throws(() => record.add(1, 0, layer(0)), /one after the other/);
    assert.throws(() => record.add(0, 1, layer(0)), /one after the other/);
  });
});
