import { expertMatrixValues } from '../../shared/model/model-shape.js';
import { type Pool, POOLS } from '../../shared/settings/cache-policies.js';
import { resolve } from 'node:path';
import { InvalidArgumentError, type Command } from 'commander';
import { openServedPack } from '../../packs/open-served-pack.js';
import type { MachineTimes } from '../../engine/planning/fit-machine-times.js';
import { planCache, type CachePlans, type CacheRequest } from '../../engine/planning/plan-cache.js';
import { slicesRead } from '../../engine/loading/open-for-quality.js';
import { planWorkerSlices } from '../../engine/planning/plan-sliced-cache.js';
import { lossMeasuredOn, slicedOffers, type SlicedOffer } from '../../engine/planning/sliced-offers.js';
import { storedBytes } from '../../shared/model/part-sizes.js';
import type { PlannedOffer } from '../output/sliced-offers-report.js';
import { measureMachineTimes } from '../../engine/planning/measure-machine-times.js';
import { slotSizes, type LoaderSettings, type SlotSizes } from '../../engine/planning/slot-sizes.js';
import { openDevice } from '../../native/index.js';
import { parseByteSize } from '../../shared/base/text/byte-size.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Pack } from '../../packs/format/open-pack.js';
import type { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import { readActivationCounts } from '../../engine/planning/activation-counts-file.js';
import { SETTINGS } from '../../shared/settings/settings-table.js';
import { settingFlag } from '../client/setting-flags.js';
import { parseWhole } from '../client/generation-flags.js';
import { cachePlanLines, planObject, type PlanOutcome } from '../output/plan-report.js';
import { runtime } from '../client/process-runtime.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { printableJson } from '../../shared/base/text/printable-text.js';

interface PlanFlags {
  memory: number;
  counts?: string;
  pools: Pool[];
  threads: number;
  topKPerWorker: number;
  layers?: number;
  directIo: boolean;
  json: boolean;
}

const POOL_LETTERS: Readonly<Record<string, Pool>> = { F: 'full', C: 'compressed', S: 'signMantissa', E: 'exponent' };

/** `odmoe plan`: finds the best division of a worker's cache on this machine, and its gain. */
export function registerPlanCommand(program: Command): void {
  program
    .command('plan')
    .description("measure how this machine loads experts, and plan a worker's cache for a memory budget")
    .argument('<pack>', 'the pack that the worker serves')
    .requiredOption('--memory <size>', 'device memory for the cache, as 4GiB', parseMemory)
    .option('--counts <file>', 'activation counts that a worker recorded')
    .option(
      '--pools <letters>',
      'pools that may be used: F whole, C compressed, S signs and mantissas, E exponents',
      parsePools,
      [...POOLS],
    )
    .option('--threads <n>', 'decompression threads (0: half of the processors)', parseWhole, 0)
    .option('--top-k-per-worker <n>', 'experts of a layer that one token asks this worker for', parsePositive, 1)
    .option('--layers <n>', 'layers that this worker serves (default: those counted, else all)', parsePositive)
    .addOption(settingFlag(SETTINGS.worker.directIo, '', 'read past the page cache, where the file system can'))
    .option('--json', 'print one JSON object', false)
    .addHelpText(
      'after',
      `
Experts are loaded for a few seconds to see what that costs here. Without counts a mild skew in popularity is assumed; a worker that
has a cache records counts as it runs. A worker started with the same budget plans by itself in the same way: this shows
beforehand what a budget is worth. "odmoe plan cluster" is another command: it plans whole clusters from device profiles.

Examples:
  odmoe plan /data/mixtral-pack --memory 8GiB
  odmoe plan /data/mixtral-pack --memory 2GB --pools F,S --layers 8 --json`,
    )
    .action(async (directory: string, flags: PlanFlags) => {
      const outcome = await plan(directory, flags);
      const text = flags.json ? printableJson(planObject(outcome)) : cachePlanLines(outcome).join('\n');
      standardOutput.write(`${text}\n`);
    });
}

async function plan(directory: string, flags: PlanFlags): Promise<PlanOutcome> {
  const pack = await openServedPack(directory);
  const { experts, expertLayers: allLayers } = pack.shape;
  const activated = flags.topKPerWorker;
  if (activated > experts)
    throw new OdmoeError('USAGE', `--top-k-per-worker ${activated}: a layer of this model has ${experts} experts`);
  if ((flags.layers ?? 1) > allLayers)
    throw new OdmoeError('USAGE', `--layers ${flags.layers}: this model has ${allLayers} layers with experts`);
  const counts = flags.counts === undefined ? null : await requireCounts(flags.counts, pack);
  const layers = flags.layers ?? (counts === null || counts.layers.length === 0 ? allLayers : counts.layers.length);
  const { threads: decompressionThreads, directIo } = flags;
  const offered = slicedOffers(pack.shape.expertsPerToken, await lossMeasuredOn(directory));
  const reading = { decompressionThreads, directIo, storageBytesPerS: 0 };
  const { sizes, times, sliced } = await measure(pack, reading, activated, offered);
  const { entryBytes } = sizes;
  const request = { budgetBytes: flags.memory, entryBytes, layers, experts, activated, counts, pools: flags.pools };
  const plans = planCache(request, times);
  const offers = sliced.map((measured) => planOffer(measured, pack, request, { times, plans }));
  return { pack, budgetBytes: flags.memory, activated, layers, sizes, times, counts, plans, offers };
}

/** An offer, and the slots for its slices on this machine. */
interface SizedOffer {
  offer: SlicedOffer;
  sizes: SlotSizes;
}

/** The experts of an offer in a worker's cache of slices of the same memory: read at the same speed, and nothing to decompress. */
function planOffer(
  { offer, sizes }: SizedOffer,
  pack: Pack,
  request: CacheRequest,
  lossless: { times: MachineTimes; plans: CachePlans },
): PlannedOffer {
  const { load, costs } = lossless.times;
  const weights = expertMatrixValues(pack.shape);
  const { exponentBytes: upper, storedBytes: read } = offer.form;
  const { gate, up, down } = pack.expert(0, 0);
  const losslessBytes = [gate, up, down].reduce((sum, tensor) => sum + storedBytes(tensor), 0);
  const tensorMs = load.signMantissaReadMs + load.shards * load.exponentReadMs;
  const readMs = (bytesOfWeight: number): number => (tensorMs * weights * bytesOfWeight) / losslessBytes;
  const times = {
    load: {
      ...load,
      exponentReadMs: readMs(upper),
      signMantissaReadMs: readMs(read - upper),
      decompressMs: 0,
      shards: 1,
    },
    costs,
  };
  const { makespanMs } = planWorkerSlices(request, sizes, pack.shape.expertsPerToken, times);
  const expertBytes = Math.round(weights * read);
  const speedup = lossless.plans.planned.makespanMs / makespanMs;
  return { offer, expertBytes, bytesShare: expertBytes / losslessBytes, speedup };
}

async function measure(
  pack: Pack,
  settings: LoaderSettings,
  activated: number,
  offered: readonly SlicedOffer[],
): Promise<{ sizes: SlotSizes; times: MachineTimes; sliced: SizedOffer[] }> {
  const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 0, budgetBytes: 0 });
  try {
    const sizes = slotSizes(device, pack, settings);
    const sliced = offered.map((offer) => {
      const slices = { split: offer.asked.split, lower: slicesRead(offer.asked) === 'both' };
      return { offer, sizes: slotSizes(device, pack, settings, slices) };
    });
    return { sizes, sliced, times: await measureMachineTimes(device, pack, sizes, activated, () => runtime.nowMs()) };
  } finally {
    device.dispose();
  }
}

/** Reads the counts; a missing file is an error here, because the user named it. */
async function requireCounts(file: string, { packDigest, shape }: Pack): Promise<ActivationCounts> {
  const { counts, problem } = await readActivationCounts(resolve(file), { packDigest, experts: shape.experts });
  if (counts !== null) return counts;
  throw new OdmoeError(
    'USAGE',
    `--counts: ${problem ?? `${file}: no such file`}; leave it out to plan with assumed counts`,
  );
}

function parseMemory(value: string): number {
  const bytes = parseByteSize(value);
  if (bytes !== null) return bytes;
  throw new InvalidArgumentError('It must be a size, as 512MiB or 4GB.');
}

function parsePools(value: string): Pool[] {
  const letters = value
    .toUpperCase()
    .split(',')
    .map((letter) => letter.trim());
  const pools = letters.flatMap((letter) => POOL_LETTERS[letter] ?? []);
  if (pools.length === letters.length) return POOLS.filter((pool) => pools.includes(pool));
  throw new InvalidArgumentError('It must be some of F, C, S and E, separated by commas.');
}

function parsePositive(value: string): number {
  const number = parseWhole(value);
  if (number > 0) return number;
  throw new InvalidArgumentError('It must be 1 or more.');
}
