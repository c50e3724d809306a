import type { Command } from 'commander';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { createProgressBar } from '../../shared/base/text/progress-bar.js';
import { formatBytes } from '../../shared/base/text/units.js';
import { deepenCheckpoint } from './deepen-checkpoint.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { printableJson } from '../../shared/base/text/printable-text.js';

const MOST_LAYERS = 10_000;

/** Adds `odmoe bench deepen`. */
export function registerBenchDeepen(bench: Command): void {
  bench
    .command('deepen')
    .description('write a checkpoint of the same function with more layers, to rehearse a deeper model')
    .argument('<source>', 'directory of a checkpoint')
    .argument('<output>', 'new or empty directory')
    .requiredOption('--layers <n>', 'layers in all', wholeNumberFlag(1, MOST_LAYERS))
    .option('--json', 'print one JSON object', false)
    .addHelpText(
      'after',
      '\nEach layer is followed by copies of it whose o_proj and w2 are zero: they are gated, loaded and run, and add nothing.\n' +
        '\nExample:\n  odmoe bench deepen models/demo /tmp/demo-32 --layers 32\n  odmoe pack /tmp/demo-32 /tmp/demo-32-pack\n',
    )
    .action(deepen);
}

async function deepen(source: string, output: string, flags: { layers: number; json: boolean }): Promise<void> {
  const bar = createProgressBar('writing weights');
  try {
    const outcome = await withInterrupt((signal) =>
      deepenCheckpoint(source, output, {
        layers: flags.layers,
        onProgress: (done, total) => bar.update(done, total),
        signal,
      }),
    );
    bar.stop();
    const text = flags.json
      ? printableJson(snakeCaseKeys({ directory: output, ...outcome }))
      : `${output}: ${outcome.layers} layers, ${formatBytes(outcome.weightBytes)} in ${outcome.files.length} files`;
    standardOutput.write(`${text}\n`);
  } finally {
    bar.stop();
  }
}
