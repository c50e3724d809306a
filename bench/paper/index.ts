import { InvalidArgumentError, Option, type Command } from 'commander';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { NATIVE_PACKING_TOOLS } from '../../packs/packing/native-tools.js';
import { packCheckpoint } from '../../packs/packing/pack-checkpoint.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { PRECISIONS, QUANTIZED } from '../../shared/settings/setting-choices.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import type { DeviceProfile } from '../../engine/emulation/device-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { openServedPack } from '../../packs/open-served-pack.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { readPredictor } from '../../packs/predictor/predictor-file.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import { deepenCheckpoint } from '../deepen/deepen-checkpoint.js';
import { MOST_PROMPTS } from '../../engine/fitting/demo-prompts.js';
import { measureTable, PAPER_TABLES, USUAL_TABLES, type PaperTable, type TableResult } from './cells.js';
import { paperProfileFile, SetUpRunner } from './measure-set-ups.js';
import { reportJson, paperReportText } from './report.js';
import type { ShadowQuantize } from './set-up.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import { standardError } from '../../shared/base/text/text-output.js';
import type { MeasuredRun } from '../history/measured-run.js';

const DEMO_CHECKPOINT = join(packageRoot(), 'models', 'demo');
const DEFAULT_PROFILE = 'rtx3090-testbed';
const MOST_TOKENS = 256;
const FEWEST_TOKENS = 2;
const MOST_WORKERS = 64;

interface PaperFlags {
  only: PaperTable[];
  prompts: number;
  tokens: number;
  workers: number;
  precision: ShadowPrecision;
  quantize: ShadowQuantize;
  /** False: --no-profile. */
  profile: string | false;
  pack?: string;
  wall: boolean;
  json: boolean;
}

/** Adds `odmoe bench paper`. */
export function registerBenchPaper(bench: Command, run: MeasuredRun): void {
  bench
    .command('paper')
    .description("run the paper's tables again: main, shadow and workers in the time and memory of profiled devices")
    .addOption(
      new Option('--only <list>', `of ${PAPER_TABLES.join(',')}`)
        .argParser(tables)
        .default([...USUAL_TABLES], 'all but sources'),
    )
    .option('--prompts <count>', 'prompts of each length', wholeNumberFlag(1, MOST_PROMPTS), 4)
    .option('--tokens <count>', 'longest answer, for a shorter run', wholeNumberFlag(FEWEST_TOKENS, MOST_TOKENS), 256)
    .option('--workers <count>', 'worker daemons', wholeNumberFlag(1, MOST_WORKERS), 8)
    .addOption(
      new Option('--precision <format>', "of the shadow's arithmetic; its time and memory are the profile's")
        .choices(PRECISIONS)
        .default('int8'),
    )
    .addOption(
      new Option('--quantize <what>', 'of the shadow: projections and experts, or embedding, routers and LM head, too')
        .choices(QUANTIZED)
        .default('projections'),
    )
    .addOption(
      new Option('--profile <file>', 'devices, network and model that are emulated').default(
        paperProfileFile(DEFAULT_PROFILE),
        DEFAULT_PROFILE,
      ),
    )
    .option('--no-profile', 'emulate nothing: this machine as fast as it is, to try the command out')
    .option('--pack <directory>', 'pack to run, with as many layers as the profile (default: the demo model, deepened)')
    .option('--wall', 'in real time: ten processes that talk gRPC, on a machine that does nothing else', false)
    .option('--json', 'one JSON object on stdout', false)
    .addHelpText(
      'after',
      '\nRuns the daemons and their arithmetic in this process on a virtual clock: figures are the same on every machine, however\n' +
        'busy it is. The table sources compares sources of predictions, on a pack with trained maps (odmoe fit). --wall starts\n' +
        'processes instead, whose figures also hold what this machine takes; docs/testbed.md tells more.\n' +
        '\nExamples:\n  odmoe bench paper --only table2\n  odmoe bench paper --only past --prompts 1 --tokens 64 --json\n',
    )
    .action(async (flags: PaperFlags) => {
      await withInterrupt((signal) => runUnlessInterrupted(flags, run, signal));
    });
}

async function runUnlessInterrupted(flags: PaperFlags, run: MeasuredRun, signal: AbortSignal): Promise<void> {
  try {
    await benchPaper(flags, run, signal);
  } catch (thrown) {
    // After an abort, the error of any call means that the run was interrupted.
    if (!signal.aborted) throw thrown;
    throw new OdmoeError('CANCELLED', 'interrupted: the daemons have been stopped; nothing measured so far is kept', {
      cause: thrown,
    });
  }
}

async function benchPaper(flags: PaperFlags, run: MeasuredRun, signal: AbortSignal): Promise<void> {
  const profilePath = flags.profile === false ? null : flags.profile;
  const profile = profilePath === null ? null : loadDeviceProfile(profilePath);
  const directory = await mkdtemp(join(tmpdir(), 'odmoe-paper-'));
  try {
    const packPath = flags.pack ?? (await makePack(directory, profile?.model.shape.layers.length ?? null, signal));
    const pack = await openServedPack(packPath);
    requireLikeProfile(pack.shape, profile);
    if (flags.only.includes('sources')) await requirePredictor(pack, flags.pack);
    const runner = new SetUpRunner({
      packPath: pack.directory,
      tokenizer: await loadTokenizer(pack.directory),
      workers: flags.workers,
      precision: flags.precision,
      quantize: flags.quantize,
      wall: flags.wall,
      prompts: flags.prompts,
      tokensLimit: flags.tokens,
      profilePath,
      directory,
      signal,
      onProgress: printProgress,
    });
    const result: TableResult = { cells: [], orders: [], past: [], shadows: [], sources: [] };
    try {
      for (const table of flags.only) {
        printProgress(`-- ${table}`);
        const { cells, orders, past, shadows, sources } = await measureTable(table, runner.measure);
        result.cells.push(...cells);
        result.orders.push(...orders);
        result.past.push(...past);
        result.shadows.push(...shadows);
        result.sources.push(...sources);
      }
    } finally {
      await runner.stop();
    }
    const { precision, quantize, wall } = flags;
    const report = {
      profile: profile?.name ?? null,
      workers: flags.workers,
      prompts: flags.prompts,
      precision,
      quantize,
      wall,
      tokensLimit: flags.tokens,
    };
    run.print(reportJson(result, report), flags.json, () => paperReportText(result, report));
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** A model with another number of layers or experts would make another cluster than the profiled one. @throws USAGE */
function requireLikeProfile(shape: ModelShape, profile: DeviceProfile | null): void {
  if (profile === null) return;
  const { expertLayers: layers, experts, expertsPerToken } = profile.model.shape;
  if (shape.expertLayers === layers && shape.experts === experts && shape.expertsPerToken === expertsPerToken) return;
  throw new OdmoeError(
    'USAGE',
    `the pack has ${shape.expertLayers} layers with ${shape.expertsPerToken} of ${shape.experts} experts, and the profile's model ` +
      `${layers} with ${expertsPerToken} of ${experts}; odmoe bench deepen adds layers`,
  );
}

/** @throws USAGE if the table of sources is asked for a pack without trained maps */
async function requirePredictor(pack: Pack, given: string | undefined): Promise<void> {
  if (given !== undefined && (await readPredictor(pack)) !== null) return;
  const what = given === undefined ? 'the demo model, deepened, has none' : `${given} has none`;
  throw new OdmoeError(
    'USAGE',
    `--only sources needs trained maps, and ${what}: odmoe fit makes them; name the pack by --pack`,
  );
}

function printProgress(line: string): void {
  standardError.write(`${line}\n`);
}

/** Makes a pack of the demo model with that many layers (null: unchanged), in the directory. Raw, because emulation needs no codec. */
async function makePack(directory: string, layers: number | null, signal: AbortSignal): Promise<string> {
  const checkpoint = layers === null ? DEMO_CHECKPOINT : join(directory, 'checkpoint');
  if (layers !== null) await deepenCheckpoint(DEMO_CHECKPOINT, checkpoint, { layers, signal });
  const packPath = join(directory, 'pack');
  const options = {
    codec: { codec: 'raw', level: null },
    shards: 1,
    name: null,
    onDamagedPack: 'refuse',
    signal,
  } as const;
  await packCheckpoint(checkpoint, packPath, options, NATIVE_PACKING_TOOLS);
  return packPath;
}

function tables(text: string): PaperTable[] {
  const asked = text.split(',').map((name) => name.trim());
  const unknown = asked.find((name) => !PAPER_TABLES.some((table) => table === name));
  if (unknown !== undefined) throw new InvalidArgumentError(`expected a list of ${PAPER_TABLES.join(', ')}`);
  return PAPER_TABLES.filter((table) => asked.includes(table));
}
