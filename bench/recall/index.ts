import { SingleBar } from 'cli-progress';
import { InvalidArgumentError, type Command } from 'commander';
import { join } from 'node:path';
import { packageRoot, THREADS_LIMIT, wholeNumberFlag } from '../../shared/config/index.js';
import type { AlignmentPeriods } from '../../shadow-node/predictor/alignment.js';
import type { ShadowPrecision } from '../../shadow-node/predictor/shadow-model.js';
import { measureRecall, type RecallProgress, type RecallReport, type RecallResult } from './measure-recall.js';
import { MOST_PROMPTS, storyPrompts } from './story-prompts.js';

const PRECISIONS: readonly ShadowPrecision[] = ['int8', 'nf4', 'fp16'];
const DEFAULT_ALIGNMENTS: readonly AlignmentPeriods[] = [
  { token: 1, keyValue: 1 },
  { token: 1, keyValue: 0 },
  { token: 0, keyValue: 1 },
  { token: 0, keyValue: 0 },
];
const MOST_ITERATIONS = 65_536;

interface RecallFlags {
  model: string;
  prompts: number;
  tokens: number;
  precision: ShadowPrecision[];
  align: AlignmentPeriods[];
  threads: number;
  json?: boolean;
}

/** Adds `odmoe bench recall`. */
export function registerBenchRecall(bench: Command): void {
  bench
    .command('recall')
    .description('how well a quantized shadow predicts the experts, by precision and alignment (OD-MoE eq. 2 and 3)')
    .option(
      '--model <directory>',
      'a pack or a checkpoint (default: the demo model)',
      join(packageRoot(), 'models', 'demo'),
    )
    .option('--prompts <count>', `story prompts, at most ${MOST_PROMPTS}`, wholeNumberFlag(1, MOST_PROMPTS), 12)
    .option('--tokens <count>', 'decode iterations of a prompt', wholeNumberFlag(1, MOST_ITERATIONS), 128)
    .option('--precision <list>', 'of int8, nf4, fp16', precisions, [...PRECISIONS])
    .option('--align <list>', 'periods TOKEN/KV in iterations, 0: never (default: 1/1,1/0,0/1,0/0)', alignments, [
      ...DEFAULT_ALIGNMENTS,
    ])
    .option('--threads <count>', '0: as many as the process may use', wholeNumberFlag(0, THREADS_LIMIT), 0)
    .option('--json', 'one JSON object on stdout, with recall by iteration')
    .addHelpText(
      'after',
      '\nBoth models run in this process, by the very decisions and passes of the daemons.\n' +
        '\nExamples:\n  odmoe bench recall\n  odmoe bench recall --precision int8 --align 1/1,2/2,4/4,8/8,16/16\n',
    )
    .action(run);
}

async function run(flags: RecallFlags): Promise<void> {
  const bar = process.stderr.isTTY
    ? new SingleBar({ format: 'recall {bar} {value}/{total} prompt runs, {eta_formatted}' })
    : null;
  let started = false;
  const onProgress: RecallProgress = (done, total) => {
    if (!started) bar?.start(total, done);
    started = true;
    bar?.update(done);
  };
  const options = {
    modelPath: flags.model,
    prompts: storyPrompts(flags.prompts),
    iterations: flags.tokens,
    precisions: flags.precision,
    alignments: flags.align,
    threads: flags.threads,
  };
  try {
    const report = await measureRecall(options, onProgress);
    bar?.stop();
    process.stdout.write(flags.json === true ? `${JSON.stringify(asJson(report))}\n` : asTable(report, flags));
  } finally {
    bar?.stop();
  }
}

function asJson(report: RecallReport): object {
  return {
    model: report.modelName,
    prompts: report.prompts,
    iterations: report.iterations,
    results: report.results.map(({ precision, alignment, metrics }) => ({
      precision,
      align_token: alignment.token,
      align_kv: alignment.keyValue,
      recall: metrics.recall,
      activated: metrics.activated,
      predicted_correctly: metrics.predictedCorrectly,
      recall_by_iteration: metrics.activatedByIteration.map((activated, index) =>
        activated === 0 ? null : (metrics.correctByIteration[index] ?? 0) / activated,
      ),
    })),
  };
}

function asTable(report: RecallReport, flags: RecallFlags): string {
  const header = ['shadow', ...flags.align.map(alignmentName)];
  const rows = flags.precision.map((precision) => {
    const ofPrecision = report.results.filter((result) => result.precision === precision);
    return [precision, ...ofPrecision.map(({ metrics }) => metrics.recall.toFixed(4))];
  });
  const lines = [header, ...rows].map((cells) => cells.map((cell, index) => pad(cell, index)).join(''));
  const { modelName, prompts, iterations } = report;
  return (
    `${lines.join('\n')}\n(recall of ${modelName}: ${prompts} prompts, ${iterations} decode iterations in all; ` +
    'columns are the alignment periods of tokens/KV rows in iterations, 0: never)\n'
  );
}

function pad(cell: string, column: number): string {
  return column === 0 ? cell.padEnd(8) : cell.padStart(10);
}

function alignmentName({ token, keyValue }: RecallResult['alignment']): string {
  return `${token}/${keyValue}`;
}

function precisions(text: string): ShadowPrecision[] {
  return text.split(',').map((name) => {
    const found = PRECISIONS.find((precision) => precision === name.trim());
    if (found === undefined) throw new InvalidArgumentError(`expected a list of ${PRECISIONS.join(', ')}`);
    return found;
  });
}

function alignments(text: string): AlignmentPeriods[] {
  return text.split(',').map((pair) => {
    const match = /^\s*(\d{1,6})\/(\d{1,6})\s*$/.exec(pair);
    if (match === null) throw new InvalidArgumentError('expected periods such as 1/1,4/4,0/0');
    return { token: Number(match[1]), keyValue: Number(match[2]) };
  });
}
