import assert from 'node:assert/strict';
import { createExpertMaps, instructionSets, openHandles, trainExpertMaps } from '../../native/index.js';
import type { ExpertMapsShape, LayerMaps } from '../../shared/model/expert-maps.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

const TOKENS = 400;
const SHAPE: ExpertMapsShape = { hiddenSize: 5, experts: 5, units: 12, layers: 2, distances: [0, 1] };
const { hiddenSize, experts, units } = SHAPE;

/** A token's state points along one axis, and somewhat along another one; its experts are the axis and its neighbour. */
function examples(): { states: Float32Array; choices: Int32Array[] } {
  const states = new Float32Array(TOKENS * hiddenSize);
  const choices = [new Int32Array(TOKENS * 2), new Int32Array(TOKENS * 2)];
  for (let token = 0; token < TOKENS; token += 1) {
    const axis = (token * 7) % hiddenSize;
    states[token * hiddenSize + axis] = 3;
    states[token * hiddenSize + ((axis + token) % hiddenSize)]! += 0.5;
    choices.forEach((chosen, distance) =>
      chosen.set([(axis + distance) % experts, (axis + distance + 1) % experts], token * 2),
    );
  }
  return { states, choices };
}

const request = (epochs: number) => ({
  hiddenSize,
  experts,
  expertsPerToken: 2,
  units,
  ...examples(),
  epochs,
  seed: 3,
});

function lastOf({ heads, headScales, biases, ...hidden }: LayerMaps): LayerMaps {
  return {
    ...hidden,
    heads: heads.slice(0, experts * units),
    headScales: headScales.slice(0, experts),
    biases: biases.slice(0, experts),
  };
}

describe('expert maps', () => {
  it('foretell what they were trained on, the same on either thread, and tell of each epoch', async () => {
    const errors: number[] = [];
    const weights = await trainExpertMaps(request(300), (epoch, error) => {
      errors.push(error);
      assert.equal(epoch, errors.length);
    });
    assert.equal(errors.length, 300);
    assert.ok((errors.at(-1) ?? 1) < (errors[0] ?? 0) / 4);
    const maps = createExpertMaps(SHAPE, [weights, lastOf(weights)]);
    const { states, choices } = examples();
    const probabilities = await maps.predict(0, states, TOKENS);
    assert.deepEqual(maps.predictHere(0, states, TOKENS), probabilities);
    const last = maps.predictHere(1, states.subarray(0, hiddenSize), 1);
    assert.deepEqual(last, probabilities.slice(0, experts));
    for (let token = 0; token < TOKENS; token += 1)
      for (const [distance, chosen] of choices.entries()) {
        const begin = (token * 2 + distance) * experts;
        const likely = [...probabilities.subarray(begin, begin + experts).entries()].filter(([, value]) => value > 0.5);
        const own = [...chosen.subarray(token * 2, token * 2 + 2)].sort();
        assert.deepEqual(likely.map(([expert]) => expert).sort(), own);
      }
    maps.dispose();
    assert.throws(() => maps.predictHere(0, states, TOKENS), { code: 'INTERNAL' });
  });

  it('are trained to the same bits with every instruction set and number of threads', async () => {
    const expected = await trainExpertMaps({ ...request(2), threads: 1 });
    const before = process.env['ODMOE_INSTRUCTION_SET'];
    try {
      for (const set of instructionSets()) {
        process.env['ODMOE_INSTRUCTION_SET'] = set;
        assert.deepEqual(await trainExpertMaps({ ...request(2), threads: 2 }), expected);
      }
    } finally {
      if (before === undefined) delete process.env['ODMOE_INSTRUCTION_SET'];
      else process.env['ODMOE_INSTRUCTION_SET'] = before;
    }
    assert.notDeepEqual(await trainExpertMaps({ ...request(2), seed: 4 }), expected);
  });

  it('are no more trained once a signal aborts, before or meanwhile', async () => {
    await assert.rejects(trainExpertMaps(request(100_000), null, AbortSignal.abort()), { code: 'CANCELLED' });
    const abort = new AbortController();
    await assert.rejects(
      trainExpertMaps(request(100_000), () => abort.abort(), abort.signal),
      (thrown) => thrown instanceof OdmoeError && thrown.code === 'CANCELLED',
    );
    assert.equal(openHandles().calls, 0);
  });

  it('are no more trained once onEpoch throws, and its error is what is thrown', async () => {
    const failure = new Error('no progress bar');
    let calls = 0;
    const fail = (): never => {
      calls += 1;
      throw failure;
    };
    await assert.rejects(trainExpertMaps(request(100_000), fail), failure);
    await assert.rejects(trainExpertMaps(request(1), fail), failure);
    assert.equal(calls, 2);
  });

  it('refuse examples that do not belong together', async () => {
    const { choices, states, ...sizes } = request(1);
    const short = states.subarray(0, hiddenSize);
    await assert.rejects(trainExpertMaps({ ...sizes, choices, states: short }), { code: 'INTERNAL' });
    const unknown = choices.map((chosen) => new Int32Array(chosen.length).fill(-1));
    await assert.rejects(trainExpertMaps({ ...sizes, choices: unknown, states }), /no token has a finite state/);
  });
});
