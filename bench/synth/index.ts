import { Option, type Command } from 'commander';
import { parseWhole } from '../../cli/client/generation-flags.js';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { createProgressBar } from '../../shared/terminal/progress-bar.js';
import { snakeCaseKeys } from '../../shared/json/snake-case.js';
import { formatBytes } from '../../shared/terminal/units.js';
import type { WeightDtype } from '../../shared/model/weight-dtype.js';
import { synthesizeCheckpoint } from './synthesize-checkpoint.js';

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
  json: boolean;
}

/** `odmoe bench synth`: a Mixtral checkpoint of any shape with random weights, to measure speed on. */
export function registerBenchSynth(bench: Command): void {
  bench
    .command('synth')
    .description('write a Mixtral-shaped checkpoint with random weights, for measuring speed')
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
    const outcome = await withInterrupt((signal) =>
      synthesizeCheckpoint(output, shape, {
        dtype: DTYPES[flags.dtype] ?? 'BF16',
        seed: flags.seed,
        onProgress: (done, total) => bar.update(done, total),
        signal,
      }),
    );
    bar.stop();
    const { parameters, weightBytes, files } = outcome;
    if (flags.json) process.stdout.write(`${JSON.stringify(snakeCaseKeys({ directory: output, ...outcome }))}\n`);
    else {
      const millions = Math.round(parameters / 1e6).toLocaleString('en');
      process.stdout.write(
        `${output}: ${millions} M parameters, ${formatBytes(weightBytes)} in ${files.length} files\n`,
      );
    }
  } finally {
    bar.stop();
  }
}
