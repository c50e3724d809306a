/**
 * Misses, modelled energy and modelled time of decode, from routers' scores (SliceMoE, section 6.3 and figures 9 and 10). What a wrong expert or a
 * low precision costs in quality is not in these rows: `mass` and `high` beside them say how far the routing and the precision went.
 */
import { join } from 'node:path';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import type { ProfiledDevice } from '../../engine/emulation/device-profile.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { SequenceRules } from '../../shared/decisions/slices/logical-sequence.js';
import { MISS_TARGETS } from '../../shared/decisions/slices/miss-budget.js';
import { LOWER_FETCHES, type LowerFetch, type Routing } from '../../shared/settings/logical-rules.js';
import { CACHE_STARTS, type CacheStart } from '../../shared/decisions/slices/warm-cache.js';
import { replayScores, thetaOfPrompt, type Replay } from '../../simulator/slices/replay-scores.js';
import type { PromptScores } from '../../simulator/slices/synthetic-scores.js';
import { sliceSizesOf, stepCosts } from './modelled-cost.js';
import type { ScoredModel } from './scored-models.js';

const GB = 1e9;

export interface DecodeRow {
  table: 'dbsc' | 'energy';
  model: string;
  cache_gb: number;
  pair: string;
  policy: string;
  /** Cache-Prior has it; null for the other policies. */
  lambda: number | null;
  /** The cumulative threshold has it; null for the other policies. */
  p: number | null;
  start: CacheStart;
  /** The constraint on misses and the lever with which it ended; null: none. */
  target: number | null;
  lever: string | null;
  /** Decode steps that are counted, from the first on. */
  steps: number;
  /** Modelled, for each token: link, memory and arithmetic in turn (`ms`), or at the same time (`ms_overlapped`). */
  mj: number;
  ms: number;
  ms_overlapped: number;
  /** Scores of the chosen experts over those of the router's own choice. */
  mass: number;
  /** The share of executions with both slices. */
  high: number;
  /** Bytes fetched over bytes that a system with whole experts asks for. */
  misses: number;
  /** Fetched for each token. */
  bytes: number;
}

const LAMBDAS: readonly number[] = [0, 0.1, 0.2, 0.4, 0.8];
const MASSES: readonly number[] = [0.5, 0.7, 0.9];
/** Decode steps that are counted, besides all. */
export const DECODE_WINDOWS: readonly number[] = [10, 25, 50];
const CRITICAL_SHARE = 0.3;

interface Policy {
  readonly name: string;
  /** False: experts are cached whole, with all bits. */
  readonly isSliced: boolean;
  readonly routing: Routing;
  readonly start: CacheStart;
  readonly lowerFetch: LowerFetch;
  readonly target: number | null;
  /** True: lower slices of critical executions are spared; false: they leave before any upper slice (SliceMoE, section 4.1). */
  readonly spares: boolean;
}

function policy(name: string, given: Partial<Policy>): Policy {
  const none: Policy = {
    name,
    isSliced: true,
    routing: { kind: 'top-k' },
    start: 'last-layer',
    lowerFetch: 'wait',
    target: null,
    spares: false,
  };
  return { ...none, ...given };
}

function prior(lambda: number): Routing {
  return lambda === 0 ? { kind: 'top-k' } : { kind: 'cache-prior', lambda, kept: 1 };
}

/** Figure 9. */
const CURVES: readonly Policy[] = [
  policy('high-bit LRU', { isSliced: false }),
  ...LAMBDAS.slice(1).map((lambda) => policy('Cache-Prior', { isSliced: false, routing: prior(lambda) })),
  ...MASSES.map((mass) => policy('cumulative', { isSliced: false, routing: { kind: 'cumulative', mass, kept: 1 } })),
  ...LAMBDAS.map((lambda) => policy('DBSC', { routing: prior(lambda) })),
  ...LAMBDAS.map((lambda) => policy('DBSC+PCW', { routing: prior(lambda), start: 'warm' })),
];

/** Figure 10: the rest as in DBSC+PCW without a bias. */
const STARTS: readonly Policy[] = [
  ...CACHE_STARTS.map((start) => policy('DBSC', { start })),
  ...CACHE_STARTS.map((start) => policy('DBSC spare-critical', { start, spares: true })),
];

/** Rules for missing lower slices, without a constraint and with each. */
const FETCHES: readonly Policy[] = LOWER_FETCHES.flatMap((lowerFetch) =>
  [null, ...MISS_TARGETS].map((target) => policy(`DBSC ${lowerFetch}`, { lowerFetch, target, start: 'warm' })),
);

export function measureDecode(models: readonly ScoredModel[]): DecodeRow[] {
  const device = loadDeviceProfile(join(packageRoot(), 'bench', 'profiles', 'ufs-lpddr4.yaml')).devices.main;
  return models.flatMap((model) => {
    const { cachesGb, constrainedGb, iterations } = model;
    const prompts = model.prompts.map((scores): TracedPrompt => {
      return { ...scores, theta: thetaOfPrompt(scores, model.shape.expertsPerToken, CRITICAL_SHARE) };
    });
    const rowsOf = (cacheGb: number, one: Policy, table: DecodeRow['table'], windows: readonly number[]): DecodeRow[] =>
      isPossible(one, model) ? decodeRows({ model, device, prompts, cacheGb, policy: one }, table, windows) : [];
    const windows = [...DECODE_WINDOWS.filter((steps) => steps < iterations), iterations];
    return [
      ...cachesGb.flatMap((cacheGb) => CURVES.flatMap((one) => rowsOf(cacheGb, one, 'energy', [iterations]))),
      ...cachesGb.flatMap((cacheGb) => STARTS.flatMap((one) => rowsOf(cacheGb, one, 'dbsc', windows))),
      ...FETCHES.flatMap((one) => rowsOf(constrainedGb, one, 'dbsc', [iterations])),
    ];
  });
}

/** A constraint on misses is met by preferring cached experts, too. */
function isPossible({ routing, target }: Policy, { prefersCached }: ScoredModel): boolean {
  return prefersCached || (routing.kind === 'top-k' && target === null);
}

/** `theta`: what the wanted share of the prompt's executions reaches. */
type TracedPrompt = PromptScores & { readonly theta: number };

interface Run {
  readonly model: ScoredModel;
  readonly device: ProfiledDevice;
  readonly prompts: readonly TracedPrompt[];
  readonly cacheGb: number;
  readonly policy: Policy;
}

function decodeRows(run: Run, table: DecodeRow['table'], windows: readonly number[]): DecodeRow[] {
  const { prompts, cacheGb, policy: used } = run;
  const { model, pair } = run.model;
  const { routing, start, target } = used;
  const replays = prompts.map((prompt) => replayScores(prompt, rulesOf(run, prompt)));
  return windows.map((steps): DecodeRow => {
    const row = { table, model, cache_gb: cacheGb, pair: `(${pair.high},${pair.low})`, policy: used.name };
    return {
      ...row,
      lambda: routing.kind === 'cache-prior' ? routing.lambda : routing.kind === 'top-k' ? 0 : null,
      p: routing.kind === 'cumulative' ? routing.mass : null,
      start,
      target,
      lever: replays[0]?.report?.lever ?? null,
      steps,
      ...meansOf(run, replays, steps),
    };
  });
}

function sizesOf({ model: { shape, pair }, policy: { isSliced } }: Run): { upperBytes: number; lowerBytes: number } {
  const sizes = sliceSizesOf(shape, pair);
  return isSliced ? sizes : { upperBytes: sizes.upperBytes + sizes.lowerBytes, lowerBytes: 0 };
}

function rulesOf(run: Run, { theta }: TracedPrompt): SequenceRules {
  const { expertLayers: layers, experts, expertsPerToken } = run.model.shape;
  const { routing, lowerFetch, start, target, isSliced, spares } = run.policy;
  const sizes = sizesOf(run);
  // As if each cached expert had its lower slice in the share of executions that are critical.
  const criticalBytes = CRITICAL_SHARE * sizes.lowerBytes;
  const sparedShare = spares ? criticalBytes / (sizes.upperBytes + criticalBytes) : 0;
  return {
    cache: { ...sizes, layers, experts, capacityBytes: run.cacheGb * GB, sparedShare },
    expertsPerToken,
    routing,
    lowerFetch,
    theta: isSliced ? theta : Infinity,
    missTarget: target,
    start,
    seed: 1,
  };
}

type Means = Pick<DecodeRow, 'mj' | 'ms' | 'ms_overlapped' | 'mass' | 'high' | 'misses' | 'bytes'>;

function meansOf(run: Run, replays: readonly Replay[], steps: number): Means {
  const { device, model } = run;
  const energy = requirePresent(device.energy, 'the profile ufs-lpddr4 has energies.');
  const sizes = sizesOf(run);
  const costOf = stepCosts(model.shape, sizes, device, energy);
  const counted = replays.flatMap((replay) => replay.steps.slice(0, steps));
  const costs = replays.flatMap((replay, prompt) =>
    replay.steps.slice(0, steps).map((layers, step) => {
      const position = (run.prompts[prompt]?.promptTokens ?? 0) + step;
      return costOf(layers, position);
    }),
  );
  const layers = counted.flat();
  const sum = (values: readonly number[]): number => values.reduce((added, value) => added + value, 0);
  const executions = sum(layers.map(({ low, high }) => low + high));
  const fetched = sum(layers.map(({ fetchedBytes }) => fetchedBytes));
  return {
    mj: sum(costs.map(({ mj }) => mj)) / costs.length,
    ms: sum(costs.map(({ serialMs }) => serialMs)) / costs.length,
    ms_overlapped: sum(costs.map(({ overlappedMs }) => overlappedMs)) / costs.length,
    mass: sum(layers.map(({ mass }) => mass)) / layers.length,
    high: run.policy.isSliced ? sum(layers.map(({ high }) => high)) / executions : 1,
    misses: fetched / (executions * (sizes.upperBytes + sizes.lowerBytes)),
    bytes: fetched / counted.length,
  };
}
