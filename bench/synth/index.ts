import { readFileSync } from 'node:fs';
import { Option, type Command } from 'commander';
import { parseWhole } from '../../cli/client/generation-flags.js';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { createProgressBar } from '../../shared/base/text/progress-bar.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { formatBytes } from '../../shared/base/text/units.js';
import type { WeightDtype } from '../../shared/model/weight-dtype.js';
import { synthesizeCheckpoint } from './synthesize-checkpoint.js';
import { synthesizeFamily } from './synthesize-family.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { printableJson } from '../../shared/base/text/printable-text.js';

const DTYPES: Readonly<Record<string, WeightDtype>> = { bf16: 'BF16', fp16: 'F16', fp32: 'F32' };

interface SynthFlags {
  hidden: number;
  intermediate: number;
  layers: number;
  experts: number;
  topK: number;
  heads: number;
  kvHeads: number;
  headDim: number;
  vocab: number;
  context: number;
  dtype: string;
  seed: number;
  repeat?: number;
  config?: string;
  json: boolean;
}

/** `odmoe bench synth`: writes a checkpoint of any shape with random weights, for measurements of speed. */
export function registerBenchSynth(bench: Command): void {
  bench
    .command('synth')
    .description('write a checkpoint with random weights, Mixtral-shaped or as a config.json says, for measuring speed')
    .argument('<output>', 'new or empty directory')
    .option('--hidden <n>', 'hidden size', parseWhole, 1024)
    .option('--intermediate <n>', 'intermediate size of an expert', parseWhole, 3584)
    .option('--layers <n>', 'layers', parseWhole, 16)
    .option('--experts <n>', 'experts of a layer', parseWhole, 8)
    .option('--top-k <n>', 'experts for each token', parseWhole, 2)
    .option('--heads <n>', 'attention heads', parseWhole, 16)
    .option('--kv-heads <n>', 'key-value heads', parseWhole, 4)
    .option('--head-dim <n>', 'size of a head', parseWhole, 64)
    .option('--vocab <n>', 'vocabulary', parseWhole, 32000)
    .option('--context <n>', 'positions that config.json promises', parseWhole, 4096)
    .addOption(new Option('--dtype <type>', 'type of the weights').choices(Object.keys(DTYPES)).default('bf16'))
    .option('--seed <n>', 'the same seed gives the same weights', parseWhole, 1)
    .option(
      '--repeat <n>',
      'answers run through so many tokens again and again, to measure drafts; the work of a token stays the same (models with a plain residual stream; the prompt should not end among the tokens with 2, which ends answers)',
      parseWhole,
    )
    .option('--config <file>', "a config.json of any family, in place of a Mixtral's sizes")
    .option('--json', 'print one JSON object', false)
    .addHelpText(
      'after',
      '\nExample:\n  odmoe bench synth /tmp/random-1.5b\n  odmoe generate /tmp/random-1.5b --prompt-token-ids 1,2,3',
    )
    .action(async (output: string, flags: SynthFlags) => synthesize(output, flags));
}

async function synthesize(output: string, flags: SynthFlags): Promise<void> {
  const shape = {
    hidden_size: flags.hidden,
    intermediate_size: flags.intermediate,
    num_hidden_layers: flags.layers,
    num_local_experts: flags.experts,
    num_experts_per_tok: flags.topK,
    num_attention_heads: flags.heads,
    num_key_value_heads: flags.kvHeads,
    head_dim: flags.headDim,
    vocab_size: flags.vocab,
    max_position_embeddings: flags.context,
  };
  const bar = createProgressBar('writing weights');
  try {
    const { config, seed, repeat } = flags;
    const outcome = await withInterrupt((signal) => {
      const repeating = repeat === undefined ? {} : { repeat };
      const options = {
        seed,
        ...repeating,
        onProgress: (done: number, total: number) => bar.update(done, total),
        signal,
      };
      if (config !== undefined) return synthesizeFamily(output, readConfig(config), options);
      return synthesizeCheckpoint(output, shape, { ...options, dtype: DTYPES[flags.dtype] ?? 'BF16' });
    });
    bar.stop();
    const { parameters, weightBytes, files } = outcome;
    if (flags.json) standardOutput.write(`${printableJson(snakeCaseKeys({ directory: output, ...outcome }))}\n`);
    else {
      const millions = Math.round(parameters / 1e6).toLocaleString('en');
      standardOutput.write(
        `${output}: ${millions} M parameters, ${formatBytes(weightBytes)} in ${files.length} files\n`,
      );
    }
  } finally {
    bar.stop();
  }
}

/** @throws USAGE */
function readConfig(path: string): Record<string, unknown> {
  try {
    const config: unknown = JSON.parse(readFileSync(path, 'utf8'));
    if (typeof config === 'object' && config !== null) return { ...config };
  } catch (thrown) {
    throw new OdmoeError('USAGE', `--config ${path} cannot be read: ${String(thrown)}`, { cause: thrown });
  }
  throw new OdmoeError('USAGE', `--config ${path} holds no object`);
}
