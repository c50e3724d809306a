import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { InvalidArgumentError, Option, type Command } from 'commander';
import { parseNumber } from '../../cli/client/generation-flags.js';
import { profileFile, share } from '../../cli/client/simulation-flags.js';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { EXPERT_STORAGES, type ExpertStorage } from '../../shared/settings/setting-choices.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { giveYoungObjectsRoom } from '../../engine/daemon/collection-pauses.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import type { DeviceProfile } from '../../engine/emulation/device-profile.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { loadModelProfile, modelProfileNames } from '../../engine/emulation/load-model-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { requireWritableFile } from '../../shared/base/files/require-writable-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { createProgressBar } from '../../shared/base/text/progress-bar.js';
import { readTrace, RecordedTrace, type TraceDocument } from '../../simulator/trace/trace-file.js';
import { demoPrompts, MOST_PROMPTS } from '../../engine/fitting/demo-prompts.js';
import { recordTraceDocument } from '../trace/record-trace.js';
import { poolsMachine, COMPARED_POLICIES, type ComparedPolicy } from './cached-worker.js';
import { measureAnswers, type PoolsBenchSetting, promptsNeeded, type TracedMachine } from './measure-answers.js';
import { type PoolsCell, statementsOf } from './pools-figures.js';
import { poolsCsv, poolsPlot, poolsText } from './pools-report.js';
import { PopularTrace } from './popular-trace.js';
import type { MeasuredRun } from '../history/measured-run.js';

interface PoolsFlags {
  profile: string;
  models: string[];
  trace: string;
  policies: ComparedPolicy[];
  budgets: number[];
  batches: number[];
  batchBudget: number;
  tokens: number;
  promptTokens: number;
  answers: number;
  recorded: number;
  warm: number;
  skew: number;
  expertStorage: ExpertStorage;
  seed: number;
  svg?: string;
  csv?: string;
  json: boolean;
}

const MOST_TOKENS = 65_536;
const MOST_ANSWERS = 256;
const MOST_SKEW = 10;

/** `odmoe bench pools`: measures the gain of a worker's cache in whole answers, by policy and memory. */
export function registerBenchPools(bench: Command, run: MeasuredRun): void {
  const answers = wholeNumberFlag(1, MOST_ANSWERS);
  bench
    .command('pools')
    .description("whole answers by memory and by what a worker keeps of experts: ZipMoE's figures 7 to 10, emulated")
    .option('--profile <file>', 'the machine: a file, or the name of one in bench/profiles', 'agx-orin')
    .option('--models <names>', 'model profiles', parseModels, ['mixtral-8x7b', 'qwen1.5-moe-a2.7b'])
    .option('--trace <file|demo>', 'a file of "odmoe bench trace"; demo: the demo model runs now', 'demo')
    .option('--policies <names>', `some of ${COMPARED_POLICIES.join(',')}`, parsePolicies, [...COMPARED_POLICIES])
    .option('--budgets <shares>', 'of all experts, what the cache can hold whole', parseShares, [0.1, 0.25, 0.5, 0.75])
    .option('--batches <counts>', 'answers at a time', parseBatches, [1, 4, 16])
    .option('--batch-budget <share>', 'the budget for these', share, 0.5)
    .option('--tokens <n>', 'tokens of an answer', wholeNumberFlag(2, MOST_TOKENS), 32)
    .option('--prompt-tokens <n>', 'of a drawn prompt', wholeNumberFlag(1, MOST_TOKENS), 16)
    .option('--answers <n>', 'answers, one at a time', answers, 2)
    .option('--recorded <n>', 'prompts that the worker has counted in an earlier run', answers, 8)
    .option('--warm <n>', 'answers before the first that is measured', answers, 1)
    .option('--skew <s>', 'drawn: popularity falls as rank to the power of minus this', skew, 1)
    .addOption(
      new Option('--expert-storage <form>', 'how experts are stored').choices([...EXPERT_STORAGES]).default('huffman'),
    )
    .option('--seed <n>', 'of drawn activations', wholeNumberFlag(0, 2 ** 32), 1)
    .option('--svg <file>', 'write plots')
    .option('--csv <file>', 'write a line for each cell')
    .option('--json', 'print one JSON object', false)
    .addHelpText(
      'after',
      `
Emulated: the daemons' own cache, plan and loader run on a profiled machine, on a virtual clock; figures are the same on every machine.
A model with as many experts as the trace's takes the trace's activations. For any other they are drawn by popularity.

Examples:
  odmoe bench pools --svg pools.svg --csv pools.csv
  odmoe bench pools --models mixtral-8x7b --budgets 0.25,0.5 --policies planned,lru,none --batches 1`,
    )
    .action((flags: PoolsFlags) => benchPools(flags, run));
}

async function benchPools(flags: PoolsFlags, run: MeasuredRun): Promise<void> {
  giveYoungObjectsRoom();
  for (const path of [flags.svg, flags.csv]) if (path !== undefined) requireWritableFile(path);
  const setting = settingOf(flags);
  const document = flags.trace === 'demo' ? await recordDemo(setting) : readTrace(flags.trace);
  const profile = loadDeviceProfile(profileFile(flags.profile));
  const machines = flags.models.map((name) => tracedMachine(name, profile, document, setting, flags));
  const bar = createProgressBar('measuring', (cells) => `${cells} cells`);
  let cells: PoolsCell[];
  try {
    cells = await withInterrupt((signal) =>
      measureAnswers(machines, setting, (done, total) => {
        if (signal.aborted) throw new OdmoeError('CANCELLED', 'interrupted');
        bar.update(done, total);
      }),
    );
  } finally {
    bar.stop();
  }
  if (flags.svg !== undefined) await write(flags.svg, poolsPlot(cells));
  if (flags.csv !== undefined) await write(flags.csv, poolsCsv(cells));
  const figures = { profile: profile.name, setting, cells, statements: statementsOf(cells) };
  const how = `(emulated: ${profile.name}, experts stored as ${flags.expertStorage}, on a virtual clock)`;
  run.print(snakeCaseKeys(figures), flags.json, () => `${poolsText(cells)}\n\n${how}\n`);
}

function settingOf(flags: PoolsFlags): PoolsBenchSetting {
  const { policies, budgets: cachedShares, batches, batchBudget: batchShare, tokens, answers } = flags;
  return {
    policies,
    cachedShares,
    batches,
    batchShare,
    tokens,
    answers,
    recordedPrompts: flags.recorded,
    warmPrompts: flags.warm,
  };
}

/** Records a trace of the demo model, with answers of the requested length and enough prompts that none is used twice. */
async function recordDemo(setting: PoolsBenchSetting): Promise<TraceDocument> {
  const prompts = promptsNeeded(setting);
  if (prompts > MOST_PROMPTS) {
    throw new OdmoeError('USAGE', `${prompts} prompts are needed, there are ${MOST_PROMPTS}: ask for fewer answers`);
  }
  const bar = createProgressBar('the demo model answers', (done) => `${done} prompts`);
  try {
    return await recordTraceDocument(
      {
        modelPath: join(packageRoot(), 'models', 'demo'),
        prompts: demoPrompts(prompts),
        iterations: setting.tokens,
        precision: 'int8',
        quantize: 'projections',
        alignment: { token: 1, keyValue: 1 },
        threads: 0,
        scores: false,
      },
      (done, total) => bar.update(done, total),
    );
  } finally {
    bar.stop();
  }
}

function tracedMachine(
  name: string,
  profile: DeviceProfile,
  document: TraceDocument,
  setting: PoolsBenchSetting,
  flags: PoolsFlags,
): TracedMachine {
  const model = loadModelProfile(name, profile.model.weightBytes);
  const machine = poolsMachine({ ...profile, model }, flags.expertStorage);
  const { expertLayers: layers, experts, expertsPerToken } = model.shape;
  const prompts = promptsNeeded(setting);
  if (document.experts !== experts || document.experts_per_token !== expertsPerToken) {
    const { promptTokens, tokens: iterations, skew, seed } = flags;
    const drawn = { layers, experts, expertsPerToken, prompts, promptTokens, iterations, skew, seed };
    return { machine, trace: new PopularTrace(drawn), activations: 'drawn' };
  }
  if (document.prompts.length < prompts) {
    throw new OdmoeError(
      'USAGE',
      `${flags.trace} has ${document.prompts.length} prompts and ${prompts} are needed: record more, or ask for fewer answers`,
    );
  }
  return { machine, trace: new RecordedTrace(document, layers), activations: 'recorded' };
}

async function write(path: string, text: string): Promise<void> {
  try {
    await writeFile(path, text);
  } catch (thrown) {
    throw writeFailure(thrown, path, null);
  }
}

function parseModels(value: string): string[] {
  const known = modelProfileNames();
  return value.split(',').map((name) => {
    if (known.includes(name)) return name;
    throw new InvalidArgumentError(`There are ${known.join(', ')}.`);
  });
}

function parsePolicies(value: string): ComparedPolicy[] {
  return value.split(',').map((name) => {
    const policy = COMPARED_POLICIES.find((known) => known === name);
    if (policy !== undefined) return policy;
    throw new InvalidArgumentError(`Give some of ${COMPARED_POLICIES.join(', ')}, separated by commas.`);
  });
}

function parseShares(value: string): number[] {
  const shares = value.split(',').map(Number);
  if (shares.every((each) => each > 0 && each <= 1)) return shares;
  throw new InvalidArgumentError('Give shares above 0 and up to 1, separated by commas.');
}

function skew(value: string): number {
  const power = parseNumber(value);
  if (power >= 0 && power <= MOST_SKEW) return power;
  throw new InvalidArgumentError(`Give a number from 0 to ${MOST_SKEW}.`);
}

function parseBatches(value: string): number[] {
  const counts = value.split(',').map(Number);
  if (counts.every((count) => Number.isInteger(count) && count >= 1 && count <= MOST_ANSWERS)) return counts;
  throw new InvalidArgumentError(`Give whole numbers from 1 to ${MOST_ANSWERS}, separated by commas.`);
}
