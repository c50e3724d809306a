import assert from 'node:assert/strict';
import { ForetoldRecall } from '../../bench/recall/compare-sources.js';
import { sourceJson, sourceTable } from '../../bench/recall/recall-report.js';

const ACTIVATED = [
  [0, 1],
  [2, 3],
  [4, 5],
];

describe('the recall of a source that looks layers ahead', () => {
  const recall = new ForetoldRecall('trained', 2);
  recall.add(0, ACTIVATED, [
    [0, 1],
    [2, 7],
    [4, 7],
  ]);
  recall.add(1, ACTIVATED, [[6, 7]]);
  const result = recall.result();

  it('counts the layers that can be foretold so far ahead, and all layers beside it', () => {
    assert.deepEqual([result.metrics.predictedCorrectly, result.metrics.activated], [1, 4]);
    assert.deepEqual([result.allLayers.predictedCorrectly, result.allLayers.activated], [4, 12]);
  });

  it('is reported by distance, as JSON and as a table', () => {
    const report = { modelName: 'm', prompts: 1, iterations: 2, results: [result] };
    const { results } = JSON.parse(JSON.stringify(sourceJson(report))) as { results: unknown };
    assert.deepEqual(results, [
      {
        source: 'trained',
        layers_ahead: 2,
        recall: 0.25,
        recall_all_layers: 4 / 12,
        activated: 4,
        predicted_correctly: 1,
      },
    ]);
    const setting = { iterations: 4, stopAtEnd: false, temperature: 0, seed: 0 };
    assert.match(sourceTable(report, setting), /trained +2 +0\.2500 +0\.3333/);
  });

  it('has the distance in the names of routers', () => {
    assert.equal(new ForetoldRecall('router-ahead', 1).result().source, 'router-ahead, 1 layer');
    assert.equal(new ForetoldRecall('router-ahead', 2).result().source, 'router-ahead, 2 layers');
  });
});
