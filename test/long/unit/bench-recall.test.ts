import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { RecallReport } from '../../../bench/recall/measure-recall.js';
import {
  recallJson,
  recallPlot,
  recallTable,
  quarterBorders,
  recallByIteration,
  recallByQuarter,
  smoothedRecall,
} from '../../../bench/recall/recall-report.js';
import { alignmentName, chooseSetUps, type RecallSetUp } from '../../../bench/recall/set-ups.js';

const names = (setUps: readonly RecallSetUp[]): string[] =>
  setUps.map(({ precision, alignment }) => `${precision} ${alignmentName(alignment)}`);
const NOTHING = { figure: null, precisions: null, alignments: null };
const SETTING = { iterations: 8, stopAtEnd: false, temperature: 0, seed: 0 };

/** Two experts activated in each iteration, so many of them predicted. */
function counts(correct: readonly number[]): { activatedByIteration: number[]; correctByIteration: number[] } {
  return { activatedByIteration: correct.map(() => 2), correctByIteration: [...correct] };
}

function reportOf(setUps: readonly RecallSetUp[]): RecallReport {
  const by = counts([2, 2, 2, 1, 1, 1, 0, 0]);
  const metrics = { recall: 9 / 16, activated: 16, predictedCorrectly: 9, late: 0, ...by };
  return { modelName: 'demo', prompts: 1, iterations: 8, results: setUps.map((setUp) => ({ ...setUp, metrics })) };
}

describe('the set-ups of the recall benchmark', () => {
  it('are those of figures 3 and 6, each once, ordered by precision', () => {
    const all = names(chooseSetUps(NOTHING));
    assert.equal(all.length, 3 * 4 + 25 - 1);
    assert.equal(new Set(all).size, all.length);
    assert.deepEqual(all.slice(0, 5), ['fp16 1/1', 'fp16 1/0', 'fp16 0/1', 'fp16 0/0', 'int8 1/1']);
    assert.ok(all.includes('int8 16/2') && !all.includes('nf4 16/2'));
    assert.deepEqual(
      all.map((name) => name.split(' ')[0]).filter((name, index, list) => name !== list[index - 1]),
      ['fp16', 'int8', 'nf4'],
    );
  });

  it('can be those of one figure, or of named precisions or alignments', () => {
    assert.equal(chooseSetUps({ ...NOTHING, figure: 3 }).length, 12);
    assert.equal(chooseSetUps({ ...NOTHING, figure: 6 }).length, 25);
    assert.equal(chooseSetUps({ ...NOTHING, figure: 6, precisions: ['nf4', 'fp16'] }).length, 50);
    assert.equal(chooseSetUps({ ...NOTHING, precisions: ['nf4'] }).length, 28);
    const alignments = [
      { token: 3, keyValue: 0 },
      { token: 3, keyValue: 0 },
    ];
    assert.deepEqual(names(chooseSetUps({ ...NOTHING, precisions: ['nf4', 'int8'], alignments })), [
      'int8 3/0',
      'nf4 3/0',
    ]);
  });
});

describe('recall by iteration', () => {
  it('is given for each iteration, each quarter and smoothed', () => {
    const metrics = counts([2, 2, 2, 1, 1, 1, 0, 0]);
    assert.deepEqual(recallByIteration(metrics), [1, 1, 1, 0.5, 0.5, 0.5, 0, 0]);
    assert.deepEqual(recallByQuarter(metrics, 8), [1, 0.75, 0.5, 0]);
    assert.deepEqual(recallByQuarter(metrics, 16), [0.875, 0.25, null, null]);
    assert.deepEqual(smoothedRecall(metrics, 3)[3], { x: 4, y: 4 / 6 });
    assert.deepEqual(smoothedRecall(metrics, 3)[7], { x: 8, y: 0 });
    assert.deepEqual(smoothedRecall(counts([]), 3), []);
    assert.deepEqual(quarterBorders(10), [0, 2, 5, 7, 10]);
  });

  it('counts every iteration in one quarter', () => {
    const correct = fc.array(fc.nat(2), { minLength: 4, maxLength: 60 });
    fc.assert(
      fc.property(correct, (each) => {
        const borders = quarterBorders(each.length);
        const quarters = recallByQuarter(counts(each), each.length);
        const sum = quarters.reduce<number>(
          (total, recall, quarter) =>
            total + (recall ?? 0) * 2 * ((borders[quarter + 1] ?? 0) - (borders[quarter] ?? 0)),
          0,
        );
        assert.ok(Math.abs(sum - each.reduce((total, one) => total + one, 0)) < 1e-9);
      }),
    );
  });
});

describe('the report of the recall benchmark', () => {
  it('has a row for each set-up, with quarters', () => {
    const lines = recallTable(reportOf(chooseSetUps({ ...NOTHING, figure: 3 })), SETTING).split('\n');
    assert.equal(lines.length, 14);
    assert.match(lines[0] ?? '', /^shadow +align +recall +n 1-2 +n 3-4 +n 5-6 +n 7-8$/);
    assert.match(lines[1] ?? '', /^fp16 +1\/1 +0\.5625 +1\.0000 +0\.7500 +0\.5000 +0\.0000$/);
    assert.match(lines.at(-1) ?? '', /1 prompts, 8 decode iterations in all, greedy/);
    const sampled = recallTable(reportOf([]), { ...SETTING, temperature: 1, seed: 7 });
    assert.match(sampled, /temperature 1, seeds from 7/);
  });

  it('can be written as JSON', () => {
    const setUps = chooseSetUps({ ...NOTHING, precisions: ['int8'], alignments: [{ token: 4, keyValue: 0 }] });
    const json = recallJson(reportOf(setUps), { ...SETTING, iterations: 16 }) as { results: object[]; seed: unknown };
    assert.equal(json.seed, null);
    assert.deepEqual(json.results, [
      {
        precision: 'int8',
        align_token: 4,
        align_kv: 0,
        recall: 9 / 16,
        recall_by_quarter: [0.875, 0.25, null, null],
        activated: 16,
        predicted_correctly: 9,
        recall_by_iteration: [1, 1, 1, 0.5, 0.5, 0.5, 0, 0],
      },
    ]);
  });

  it('is drawn as curves, and as a map where periods were run', () => {
    const both = recallPlot(reportOf(chooseSetUps(NOTHING)));
    assert.equal(both.match(/<polyline/g)?.length, 12);
    assert.equal(both.match(/0\.5625/g)?.length, 25);
    for (const words of ['FP16', 'INT8', 'NF4', 'align 0/1', 'mean of 16', 'INT8 shadow']) {
      assert.ok(both.includes(words), words);
    }
    assert.doesNotMatch(both, /NaN|Infinity|undefined/);
    const curves = recallPlot(reportOf(chooseSetUps({ ...NOTHING, figure: 3 })));
    assert.doesNotMatch(curves, /0\.5625/);
    const map = recallPlot(reportOf(chooseSetUps({ ...NOTHING, figure: 6 })));
    assert.equal(map.match(/0\.5625/g)?.length, 25);
    const named = recallPlot(reportOf(chooseSetUps({ ...NOTHING, alignments: [{ token: 3, keyValue: 0 }] })));
    assert.equal(named.match(/<polyline/g)?.length, 3);
  });
});
