import assert from 'node:assert/strict';
import { assumedRecall } from '../../simulator/plan/assumed-recall.js';
import { recordedScores } from '../../simulator/slices/recorded-scores.js';
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

  it('of version 2 have the scores of all experts, and of version 1 none', () => {
    // Two layers of four experts: 0.5, 0.25, 0.125, 0.125 and 1, 0, the least FP16, 0.
    const halves = Uint16Array.of(0x3800, 0x3400, 0x3000, 0x3000, 0x3c00, 0, 1, 0);
    const scores = Buffer.from(halves.buffer).toString('base64');
    const [prompt] = DOCUMENT.prompts;
    const second = {
      ...DOCUMENT,
      version: 2,
      router_score: 'softmax',
      prompts: [{ ...prompt, scores: [scores, scores] }],
    };
    const { promptTokens, positions } = recordedScores(parseTrace(JSON.stringify(second), 'trace.json'), 0);
    assert.equal(promptTokens, 1);
    assert.equal(positions.length, 2);
    const [first, last] = positions[1] ?? [];
    assert.deepEqual(Array.from(first?.scores ?? []), [0.5, 0.25, 0.125, 0.125]);
    assert.deepEqual(Array.from(last?.scores ?? []), [1, 0, 2 ** -24, 0]);
    const [most = 0, next = 0] = Array.from(first?.logits ?? []);
    assert.ok(Math.abs(most - next - Math.log(2)) < 1e-12);
    assert.ok(Array.from(last?.logits ?? []).every(Number.isFinite));
    const sigmoid = { ...second, router_score: 'sigmoid' };
    const [one] = recordedScores(parseTrace(JSON.stringify(sigmoid), 'trace.json'), 0).positions[0] ?? [];
    assert.ok(Math.abs((one?.logits[1] ?? 0) + Math.log(3)) < 1e-12);
    assert.throws(
      () => recordedScores(parseTrace(JSON.stringify(DOCUMENT), 'trace.json'), 0),
      /has no scores: record it/,
    );
    const refused = (document: object, message: RegExp): void =>
      assert.throws(() => parseTrace(JSON.stringify(document), 'trace.json'), message);
    refused({ ...second, router_score: undefined }, /router_score belongs to version 2/);
    refused({ ...second, version: 1, router_score: undefined }, /scores belong to version 2/);
    refused({ ...second, prompts: [{ ...prompt, scores: [scores] }] }, /an entry for each position/);
    refused({ ...second, prompts: [{ ...prompt, scores: [scores, 'AAAA'] }] }, /scores\.1 is no base64 of 8 FP16/);
    refused({ ...second, version: 3 }, /version/);
    const choice = { groups: 2, groups_kept: 1, group_score: 'best-two' };
    const bias = [
      [0, 0, 0.3, 0.3],
      [0, 0, 0, 0],
    ];
    const chosen = recordedScores(
      parseTrace(JSON.stringify({ ...second, router_choice: { ...choice, bias } }), 'trace.json'),
      0,
    ).positions[0];
    // 0.75 and 0.85 are the sums of the groups of the first layer, 1 and 2^-24 those of the second one.
    assert.deepEqual(
      chosen?.map(({ ranking }) => Array.from(ranking ?? [])),
      [
        [-Infinity, -Infinity, 0.425, 0.425],
        [1, 0, -Infinity, -Infinity],
      ],
    );
    refused({ ...DOCUMENT, router_choice: choice }, /router_choice belongs to version 2/);
    refused({ ...second, router_choice: { ...choice, groups: 3 } }, /1 of 3 groups of 4 experts/);
    refused({ ...second, router_choice: { ...choice, bias: [[0, 0, 0, 0]] } }, /is not 2 layers of 4 numbers/);
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
