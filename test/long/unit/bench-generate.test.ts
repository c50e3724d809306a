import assert from 'node:assert/strict';
import { measureContexts, type ContextBenchOptions } from '../../../bench/generate/measure-contexts.js';
import { synthesizeCheckpoint } from '../../../bench/synth/synthesize-checkpoint.js';
import { OdmoeError } from '../../../shared/base/errors/odmoe-error.js';
import { withTemporaryDirectory } from '../../unit/tiny-checkpoint.js';

const SHAPE = {
  hidden_size: 16,
  intermediate_size: 20,
  num_hidden_layers: 2,
  num_local_experts: 3,
  num_experts_per_tok: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 4,
  vocab_size: 24,
  max_position_embeddings: 64,
};

const OPTIONS: ContextBenchOptions = {
  contexts: [5, 33],
  resident: null,
  answerTokens: 3,
  rounds: 2,
  threads: 2,
  prefillRows: 8,
  machineMs: 2,
};

describe('the plan of bench generate', () => {
  it('has a prefill, and a decode for each round, of every context', async () => {
    await withTemporaryDirectory(async (directory) => {
      await synthesizeCheckpoint(directory, SHAPE, { dtype: 'BF16', seed: 1 });
      let joules = 0;
      const measured = await measureContexts(directory, OPTIONS, { joules: () => (joules += 6) });
      assert.deepEqual(
        measured.map(({ context }) => context),
        OPTIONS.contexts,
      );
      for (const figures of measured) {
        assert.ok(figures.prefillTokensPerS > 0 && Number.isFinite(figures.prefillShare));
        assert.ok(Math.abs(figures.prefillTokensPerS * figures.prefillMs - 1000 * figures.context) < 1);
        for (const rounds of [figures.decodeTokensPerS, figures.decodeBytesPerS, figures.decodeShare]) {
          assert.equal(rounds.length, 2);
          assert.ok(rounds.every((value) => value > 0 && Number.isFinite(value)));
        }
        // Six joules between the begin and the end of three tokens.
        assert.deepEqual(figures.decodeJoulesPerToken, [2, 2]);
      }
    });
  });

  it("refuses a context beyond the model's positions", async () => {
    await withTemporaryDirectory(async (directory) => {
      await synthesizeCheckpoint(directory, SHAPE, { dtype: 'BF16', seed: 1 });
      await assert.rejects(
        measureContexts(directory, { ...OPTIONS, contexts: [59] }, { joules: () => null }),
        (thrown: unknown) =>
          thrown instanceof OdmoeError && thrown.code === 'USAGE' && thrown.message.includes('64 positions'),
      );
    });
  });
});
