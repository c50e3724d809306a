import assert from 'node:assert/strict';
import { assumedRecall } from '../../simulator/plan/assumed-recall.js';
import { SyntheticTrace } from '../../simulator/trace/synthetic-trace.js';
import { parseTrace, recordedRecall, RecordedTrace } from '../../simulator/trace/trace-file.js';

const SETTING = {
  layers: 8,
  experts: 8,
  expertsPerToken: 2,
  prompts: 2,
  promptTokens: 3,
  iterations: 400,
  recall: 0.9,
  acceptance: 0.7,
  seed: 5,
};

const DOCUMENT = {
  format: 'odmoe-trace',
  version: 1,
  model: 'tiny',
  precision: 'int8',
  align_token: 1,
  align_kv: 1,
  layers: 2,
  experts: 4,
  experts_per_token: 2,
  prompts: [
    {
      prompt_tokens: 1,
      activated: [
        [
          [0, 1],
          [2, 3],
        ],
        [
          [1, 2],
          [3, 0],
        ],
      ],
      predicted: [
        [
          [1, 2],
          [3, 1],
        ],
      ],
      guessed_right: [true],
    },
  ],
};

describe('traces for the simulator', () => {
  it('have the set recall and acceptance when synthetic, and are the same every time', () => {
    const [trace, again] = [new SyntheticTrace(SETTING), new SyntheticTrace(SETTING)];
    let correct = 0;
    let right = 0;
    for (let position = 3; position < 403; position += 1) {
      if (trace.guessedRight(0, position)) right += 1;
      for (let layer = 0; layer < 8; layer += 1) {
        const place = { prompt: 0, position, layer, onPath: true };
        const activated = trace.activated(place);
        const predicted = trace.predicted(place);
        assert.equal(new Set(activated).size, 2);
        assert.equal(new Set(predicted).size, 2);
        assert.ok([...activated, ...predicted].every((expert) => expert >= 0 && expert < 8));
        assert.deepEqual(again.predicted(place), predicted);
        correct += activated.filter((expert) => predicted.includes(expert)).length;
      }
    }
    // Four standard deviations of 6400 and of 400 draws.
    assert.ok(Math.abs(correct / 6400 - 0.9) < 0.015, `${correct / 6400}`);
    assert.ok(Math.abs(right / 400 - 0.7) < 0.092, `${right / 400}`);
  });

  it('can be read from records, and stretched to more layers', () => {
    const document = parseTrace(JSON.stringify(DOCUMENT), 'trace.json');
    assert.equal(recordedRecall(document), 0.75);
    const trace = new RecordedTrace(document, 4);
    const at = (layer: number) => trace.activated({ prompt: 0, position: 1, layer, onPath: true });
    assert.deepEqual([0, 1, 2, 3].map(at), [
      [1, 2],
      [1, 2],
      [3, 0],
      [3, 0],
    ]);
    assert.equal(trace.iterations(0), 1);
    assert.equal(trace.guessedRight(0, 1), true);
    const offPath = trace.predicted({ prompt: 0, position: 1, layer: 0, onPath: false });
    assert.equal(new Set(offPath).size, 2);
  });

  it('are refused when damaged, with the place of the damage', () => {
    const [prompt] = DOCUMENT.prompts;
    const damaged: [object, RegExp][] = [
      [{ ...DOCUMENT, version: 2 }, /version/],
      [{ ...DOCUMENT, prompts: [{ ...prompt, predicted: [] }] }, /prompts\.0: predicted and guessed_right need 1/],
      [{ ...DOCUMENT, experts: 3 }, /different ones below 3/],
      [{ ...DOCUMENT, layers: 3 }, /a position has 2 layers, not 3/],
      [{ ...DOCUMENT, prompts: [{ ...prompt, prompt_tokens: 2 }] }, /the prompt alone 2/],
    ];
    for (const [document, message] of damaged) {
      assert.throws(() => parseTrace(JSON.stringify(document), 'trace.json'), message);
    }
    assert.throws(() => parseTrace('{', 'trace.json'), /no JSON/);
  });

  it('assume that recall falls with the periods, down to chance', () => {
    const model = { alignedRecall: 0.997, acceptance: 0.98, keyValueDecay: 0.998, experts: 8, expertsPerToken: 2 };
    const of = (token: number, keyValue: number): number => assumedRecall(model, { token, keyValue }, 256);
    assert.equal(of(1, 1).toFixed(9), '0.997000000');
    const falling = [of(1, 1), of(2, 1), of(4, 2), of(16, 16), of(0, 0)];
    assert.deepEqual(
      falling,
      [...falling].sort((left, right) => right - left),
    );
    assert.ok(of(0, 0) > 0.25 && of(0, 0) < 0.6);
    assert.ok(of(1, 0) > of(0, 1));
  });
});
