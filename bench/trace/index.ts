import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { SingleBar } from 'cli-progress';
import { InvalidArgumentError, Option, type Command } from 'commander';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { QUANTIZED } from '../../shared/settings/setting-choices.js';
import { THREADS_LIMIT } from '../../shared/settings/setting-limits.js';
import { requireWritableFile } from '../../shared/base/files/require-writable-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import type { AlignmentPeriods } from '../../shadow-node/predictor/alignment.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import { demoPrompts, MOST_PROMPTS } from '../../engine/fitting/demo-prompts.js';
import { NAMED_PRECISIONS } from '../recall/set-ups.js';
import { recordedRecall, type TraceDocument } from '../../simulator/trace/trace-file.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { recordTraceDocument } from './record-trace.js';
import { standardError, standardOutput } from '../../shared/base/text/text-output.js';

const MOST_ITERATIONS = 65_536;

interface TraceFlags {
  model: string;
  prompts: number;
  tokens: number;
  precision: ShadowPrecision;
  quantize: NodeSettings['shadow']['quantize'];
  align: AlignmentPeriods;
  threads: number;
}

/** Adds `odmoe bench trace`. */
export function registerBenchTrace(bench: Command): void {
  bench
    .command('trace')
    .description('write down what a model and its shadow do with prompts, for "odmoe simulate --trace"')
    .argument('<out>', 'JSON file to write')
    .option(
      '--model <directory>',
      'a pack or a checkpoint (default: the demo model)',
      join(packageRoot(), 'models/demo'),
    )
    .option('--prompts <count>', `prompts, at most ${MOST_PROMPTS}`, wholeNumberFlag(1, MOST_PROMPTS), 4)
    .option('--tokens <count>', 'decode iterations of a prompt', wholeNumberFlag(1, MOST_ITERATIONS), 64)
    .option('--precision <name>', 'of the shadow: fp16, int8, nf4, sliced(8,4) ...', precision, 'int8')
    .addOption(
      new Option('--quantize <what>', 'of the shadow: projections and experts, or embedding, routers and LM head, too')
        .choices(QUANTIZED)
        .default('projections'),
    )
    .option('--align <periods>', 'TOKEN/KV in iterations, 0: never', alignment, { token: 1, keyValue: 1 })
    .option('--threads <count>', '0: as many as the process may use', wholeNumberFlag(0, THREADS_LIMIT), 0)
    .addHelpText('after', '\nExample:\n  odmoe bench trace demo-trace.json --prompts 8 --tokens 128')
    .action(run);
}

async function run(out: string, flags: TraceFlags): Promise<void> {
  requireWritableFile(out);
  const bar = standardError.isTerminal ? new SingleBar({ format: 'trace {bar} {value}/{total} prompts' }) : null;
  const recording = {
    modelPath: flags.model,
    prompts: demoPrompts(flags.prompts),
    iterations: flags.tokens,
    precision: flags.precision,
    quantize: flags.quantize,
    alignment: flags.align,
    threads: flags.threads,
    scores: true,
  };
  try {
    bar?.start(flags.prompts, 0);
    const document = await recordTraceDocument(recording, (done) => bar?.update(done));
    try {
      await writeFile(out, `${JSON.stringify(document)}\n`);
    } catch (thrown) {
      throw writeFailure(thrown, out, null);
    }
    bar?.stop();
    standardOutput.write(
      `${out}: ${flags.prompts} prompts, recall ${recordedRecall(document).toFixed(4)}${scoresText(document)}\n`,
    );
  } finally {
    bar?.stop();
  }
}

function scoresText({ version }: TraceDocument): string {
  return version === 2 ? '' : "; no scores: this model's routers do not score all experts by one rule";
}

function precision(text: string): ShadowPrecision {
  const found = NAMED_PRECISIONS.find((name) => name === text);
  if (found === undefined) throw new InvalidArgumentError(`Give one of ${NAMED_PRECISIONS.join(', ')}.`);
  return found;
}

function alignment(text: string): AlignmentPeriods {
  const match = /^(\d{1,6})\/(\d{1,6})$/.exec(text);
  if (match === null) throw new InvalidArgumentError('Give periods such as 1/1 or 4/0.');
  return { token: Number(match[1]), keyValue: Number(match[2]) };
}
