import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { SingleBar } from 'cli-progress';
import { InvalidArgumentError, type Command } from 'commander';
import { parseNumber, parseWhole } from '../../cli/client/generation-flags.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { THREADS_LIMIT } from '../../shared/settings/setting-limits.js';
import { MAX_SEED, resolveSampling, type SamplingOptions } from '../../shared/wire/sampling-options.js';
import { requireWritableFile } from '../../shared/base/files/require-writable-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import type { AlignmentPeriods } from '../../shadow-node/predictor/alignment.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import { compareSources } from './compare-sources.js';
import { demoPrompts, MOST_PROMPTS } from '../../engine/fitting/demo-prompts.js';
import { measureRecall, type RecallProgress } from './measure-recall.js';
import { recallJson, recallPlot, recallTable, sourceJson, sourceTable } from './recall-report.js';
import { chooseSetUps, NAMED_PRECISIONS, readPrecisions, type RecallFigure } from './set-ups.js';
import { standardError } from '../../shared/base/text/text-output.js';
import type { MeasuredRun } from '../history/measured-run.js';

const MOST_ITERATIONS = 65_536;

interface RecallFlags {
  model: string;
  prompts: number;
  tokens: number;
  figure?: RecallFigure;
  precision?: ShadowPrecision[];
  align?: AlignmentPeriods[];
  sources: boolean;
  stopAtEnd: boolean;
  temperature: number;
  topK: number;
  topP: number;
  seed: number;
  threads: number;
  plot?: string;
  json: boolean;
}

/** Adds `odmoe bench recall`. */
export function registerBenchRecall(bench: Command, run: MeasuredRun): void {
  const demoModel = join(packageRoot(), 'models', 'demo');
  bench
    .command('recall')
    .description('how well a quantized shadow predicts the experts, by precision and alignment (OD-MoE eq. 2 and 3)')
    .option('--model <directory>', 'a pack or a checkpoint (default: the demo model)', demoModel)
    .option('--prompts <count>', `prompts, at most ${MOST_PROMPTS}`, wholeNumberFlag(1, MOST_PROMPTS), 60)
    .option('--tokens <count>', 'decode iterations of a prompt', wholeNumberFlag(1, MOST_ITERATIONS), 256)
    .option('--figure <3|6>', "set-ups of one of the paper's figures (default: both)", figure)
    .option(
      '--precision <list>',
      'of fp16, int8, nf4 (default: these for figure 3, int8 for figure 6), sliced(8,4), sliced(8,4,low) ...',
      precisions,
    )
    .option(
      '--align <list>',
      'periods TOKEN/KV in iterations, 0: never, such as 1/1,4/0, in place of a figure',
      alignments,
    )
    .option('--sources', 'compare shadows with predictions that need none, in place of alignments', false)
    .option('--stop-at-end', 'end answers where the model ends them; else they go on to the last iteration', false)
    .option('--temperature <t>', '0 takes the most likely token, higher is more varied', parseNumber, 0)
    .option('--top-k <k>', 'choose among the k most likely tokens (0: all)', parseWhole, 0)
    .option('--top-p <p>', 'choose among the fewest tokens that hold probability p', parseNumber, 1)
    .option(
      '--seed <n>',
      'of the first prompt; each next one has the next',
      wholeNumberFlag(0, MAX_SEED - MOST_PROMPTS),
      0,
    )
    .option('--threads <count>', '0: as many as the process may use', wholeNumberFlag(0, THREADS_LIMIT), 0)
    .option('--plot <file>', 'write an SVG: recall by iteration, and by periods')
    .option('--json', 'one JSON object on stdout, with recall by iteration', false)
    .addHelpText(
      'after',
      `
Both models run in this process, by the very decisions and passes of the daemons. Figure 3: tokens and KV rows aligned at every
iteration, one of them only, none. Figure 6: every pair of the periods 1, 2, 4, 8, 16. The demo model works to about 320 positions; its
prompts leave room for 256 tokens. The default run takes about five minutes on two cores.

Examples:
  odmoe bench recall --plot recall.svg
  odmoe bench recall --sources --prompts 20 --tokens 128
  odmoe bench recall --figure 3 --temperature 1 --seed 7
  odmoe bench recall --precision int8 --align 1/1,2/2,4/4,8/8,16/16
  odmoe bench recall --precision 'int8,sliced(8,4),sliced(8,4,low)' --align 1/1`,
    )
    .action(async (flags: RecallFlags, command: Command) => {
      if (flags.figure !== undefined && flags.align !== undefined) {
        command.error('error: --align takes the place of a figure: give one of --align and --figure');
      }
      await benchRecall(flags, run);
    });
}

async function benchRecall(flags: RecallFlags, run: MeasuredRun): Promise<void> {
  const { model, prompts, tokens, stopAtEnd, threads, plot } = flags;
  if (plot !== undefined) requireWritableFile(plot);
  const sampling = samplingFrom(flags);
  const common = { modelPath: model, prompts: demoPrompts(prompts), iterations: tokens, stopAtEnd, sampling, threads };
  const options = {
    ...common,
    setUps: chooseSetUps({
      figure: flags.figure ?? null,
      precisions: flags.precision ?? null,
      alignments: flags.align ?? null,
    }),
  };
  const bar = standardError.isTerminal
    ? new SingleBar({ format: 'recall {bar} {value}/{total} prompt runs, {eta_formatted}', clearOnComplete: true })
    : null;
  let started = false;
  const onProgress: RecallProgress = (done, total) => {
    if (!started) bar?.start(total, done);
    started = true;
    bar?.update(done);
  };
  const setting = { iterations: tokens, stopAtEnd, temperature: sampling.temperature, seed: sampling.seed };
  try {
    if (flags.sources) {
      const compared = await compareSources(common, onProgress);
      bar?.stop();
      run.print(sourceJson(compared), flags.json, () => `${sourceTable(compared, setting)}\n`);
      return;
    }
    const report = await measureRecall(options, onProgress);
    bar?.stop();
    run.print(recallJson(report, setting), flags.json, () => `${recallTable(report, setting)}\n`);
    if (plot !== undefined) await writePlot(plot, recallPlot(report));
  } finally {
    bar?.stop();
  }
}

function samplingFrom({ temperature, topK, topP, seed }: RecallFlags): SamplingOptions {
  return resolveSampling({ temperature, topK, topP, minP: 0, repetitionPenalty: 1, seed }, () => seed);
}

async function writePlot(path: string, svg: string): Promise<void> {
  try {
    await writeFile(path, svg);
  } catch (thrown) {
    throw writeFailure(thrown, path, null);
  }
}

function figure(text: string): RecallFigure {
  if (text === '3') return 3;
  if (text === '6') return 6;
  throw new InvalidArgumentError('expected 3 or 6');
}

function precisions(text: string): ShadowPrecision[] {
  const found = readPrecisions(text);
  if (found === null) throw new InvalidArgumentError(`expected a list of ${NAMED_PRECISIONS.join(', ')}`);
  return found;
}

function alignments(text: string): AlignmentPeriods[] {
  return text.split(',').map((pair) => {
    const match = /^\s*(\d{1,6})\/(\d{1,6})\s*$/.exec(pair);
    if (match === null) throw new InvalidArgumentError('expected periods such as 1/1,4/4,0/0');
    return { token: Number(match[1]), keyValue: Number(match[2]) };
  });
}
