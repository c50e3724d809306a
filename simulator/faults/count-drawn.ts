import { CACHE_POLICIES } from '../../shared/settings/cache-policies.js';
import { LOWER_FETCHES } from '../../shared/settings/logical-rules.js';
import type { Quality } from '../../shared/settings/quality.js';
import type { SamplingMessage } from '../../shared/wire/messages.js';
import { drawableOfRows, drawnOfRows } from './drawn-rows.js';
import { budgetKind } from './draw-budget.js';
import { MAX_WORKERS } from './draw-world.js';
import {
  FAULT_KINDS,
  SCENARIO_MODELS,
  SHARED_BEGINNINGS,
  THEMES,
  type Scenario,
  type ScenarioRequest,
} from './scenario.js';
import { MAIN_ID } from '../simulate/cluster-set-up.js';

/** The number of times that each value was drawn, by its kind. Values that were never drawn are listed with 0. */
export type DrawnCounts = Record<string, Record<string, number>>;

const YES_NO = ['no', 'yes'] as const;

/** All values that scenarios should draw, over at least a few hundred seeds. */
const DRAWABLE: Record<string, readonly (string | number)[]> = {
  ...drawableOfRows(),
  themes: THEMES,
  authority: YES_NO,
  models: SCENARIO_MODELS,
  workers: Array.from({ length: MAX_WORKERS }, (_, index) => index + 1),
  shadows: [0, 1, 2],
  discovery: ['mdns', 'main', 'configured'],
  fetchingWorkers: YES_NO,
  fetchingShadows: YES_NO,
  lateStarts: YES_NO,
  mixedReleases: YES_NO,
  skewedWallClocks: YES_NO,
  faults: FAULT_KINDS,
  faultsAtMain: YES_NO,
  optimistic: YES_NO,
  expertsOfMain: ['workers', 'local', 'both'],
  quality: ['exact', 'high', 'low', 'critical', 'cached'],
  lowerFetch: LOWER_FETCHES,
  routing: ['top-k', 'cumulative', 'cache-prior'],
  residentOfMain: ['shipped', 'auto', 'fixed4'],
  replicas: [1, 2],
  streamKeyValues: YES_NO,
  slots: [1, 2, 3],
  cachePolicy: ['none', ...CACHE_POLICIES],
  hostMemory: ['none', 'auto', 'bounded'],
  cachedForms: ['shipped', 'fixed4'],
  memoryBudgets: ['none', 'holdsAll', 'holdsSome', 'holdsNothing'],
  batching: YES_NO,
  passRows: [1, 2, 5, 16, 64, 512],
  contextMemory: ['auto', 'bounded'],
  reusePrefixes: YES_NO,
  requests: [1, 2, 3, 4, 8, 16],
  bursts: YES_NO,
  beginnings: ['own', ...SHARED_BEGINNINGS],
  requestKinds: [
    'text',
    'tokens',
    'chat',
    'raw',
    'greedy',
    'sampled',
    'topK',
    'topP',
    'minP',
    'repetitionPenalty',
    'stop',
    'ignoreEos',
    'logprobs',
    'cancelled',
    'oneToken',
    'longPrompt',
    'presencePenalty',
    'frequencyPenalty',
    'logitBias',
    'promptLogprobs',
    'specialTokens',
    'outputFormat',
    'noToken',
    'emptyMessage',
    'slowReader',
    'messages',
    'longAnswer',
    'refused',
  ],
};

/** Tokens and positions of the tiny models; requests beyond them are refused. */
const VOCABULARY = 1024;
const MAX_PROMPT = 640;

/** A prompt of this many tokens or words is long for a tiny model. */
const LONG_PROMPT = 20;

/** Sampling of a request that leaves the choice to the model. */
const NO_SAMPLING: SamplingMessage = { temperature: -1, topK: 0, topP: 0, minP: 0, repetitionPenalty: 0 };

/** Pure. */
export function countDrawn(scenarios: Iterable<Scenario>): DrawnCounts {
  const counts: DrawnCounts = {};
  for (const [name, values] of Object.entries(DRAWABLE)) {
    counts[name] = Object.fromEntries(values.map((value) => [String(value), 0]));
  }
  for (const scenario of scenarios) {
    for (const [name, value] of drawnOf(scenario)) {
      const ofName = (counts[name] ??= {});
      ofName[String(value)] = (ofName[String(value)] ?? 0) + 1;
    }
  }
  return counts;
}

/** The values that were never drawn, in the form "faults: kill". */
export function neverDrawn(counts: DrawnCounts): string[] {
  return Object.entries(counts).flatMap(([name, ofName]) =>
    Object.entries(ofName).flatMap(([value, count]) => (count === 0 ? [`${name}: ${value}`] : [])),
  );
}

type Drawn = readonly [name: string, value: string | number];

function drawnOf(scenario: Scenario): Drawn[] {
  const { theme, hasAuthority, model, nodes, requests, faults } = scenario;
  const roles = nodes.map(({ settings }) => settings.role);
  return [
    ['themes', theme],
    ['authority', yesNo(hasAuthority)],
    ['models', model],
    ['workers', roles.filter((role) => role === 'worker').length],
    ['shadows', roles.filter((role) => role === 'shadow').length],
    ['fetchingWorkers', yesNo(nodes.some(({ settings, fetches }) => fetches && settings.role === 'worker'))],
    ['fetchingShadows', yesNo(nodes.some(({ settings, fetches }) => fetches && settings.role === 'shadow'))],
    ['lateStarts', yesNo(nodes.some(({ startMs }) => startMs > 0))],
    ['mixedReleases', yesNo(nodes.some(({ isNewer }) => isNewer) && !nodes.every(({ isNewer }) => isNewer))],
    ['skewedWallClocks', yesNo(nodes.some(({ wallSkewMs }) => wallSkewMs !== 0))],
    ...faults.map(({ kind }): Drawn => ['faults', kind]),
    ...faults.map(({ node }): Drawn => ['faultsAtMain', yesNo(node === MAIN_ID)]),
    ['requests', requests.length],
    ['bursts', yesNo(requests.length > 1 && requests.every(({ atMs }) => atMs === requests[0]?.atMs))],
    ...requests.map(({ begins }): Drawn => ['beginnings', begins ?? 'own']),
    ...requests.flatMap((request) => requestKinds(request).map((kind): Drawn => ['requestKinds', kind])),
    ...drawnOfSettings(scenario),
  ];
}

function drawnOfSettings({ model, nodes }: Scenario): Drawn[] {
  const [main, ...others] = nodes.map(({ settings }) => settings);
  if (main === undefined) return [];
  const { batching, drafting, placement, align, discovery } = main;
  const joinsMain = others.some(({ mainAddress }) => mainAddress !== null);
  return [
    [
      'discovery',
      discovery.provider === 'mdns' ? 'mdns' : discovery.peers.length > 0 || !joinsMain ? 'configured' : 'main',
    ],
    ['batching', yesNo(batching.enabled)],
    ['passRows', batching.maxRows],
    ['contextMemory', main.main.contextMemoryBytes === 'auto' ? 'auto' : 'bounded'],
    ['reusePrefixes', yesNo(main.main.reusePrefixes)],
    ['optimistic', yesNo(drafting.optimistic)],
    ['expertsOfMain', main.main.experts],
    ...drawnOfQuality(main.main.quality),
    ['residentOfMain', main.main.resident ?? 'shipped'],
    ['replicas', placement.replicas],
    ['streamKeyValues', yesNo(align.streamKeyValues)],
    ...[main, ...others].flatMap((settings) => drawnOfRows(settings)),
    ...[main, ...others].map((settings): Drawn => ['memoryBudgets', budgetKind(model, settings)]),
    ...others.flatMap((settings): Drawn[] => {
      const { role, worker } = settings;
      if (role !== 'worker') return [];
      return [
        ['slots', worker.slots],
        ['cachePolicy', worker.pools === null && worker.cacheBytes === 0 ? 'none' : worker.cachePolicy],
        ['hostMemory', hostMemoryKind(worker.hostMemory)],
        ['cachedForms', worker.pools === null ? 'none' : (worker.resident ?? 'shipped')],
      ];
    }),
  ];
}

function drawnOfQuality(quality: Quality): Drawn[] {
  const { kind } = quality;
  if (kind !== 'cached') return [['quality', kind]];
  return [
    ['quality', kind],
    ['lowerFetch', quality.lowerFetch],
    ['routing', quality.routing.kind],
  ];
}

function hostMemoryKind(hostMemory: number | 'auto'): string {
  if (hostMemory === 'auto') return 'auto';
  return hostMemory === 0 ? 'none' : 'bounded';
}

function requestKinds({ request, cancelAfterMs, readMs }: ScenarioRequest): string[] {
  const { text, messages, promptTokenIds, raw, maxTokens, stop, ignoreEos, logprobs } = request;
  const { temperature, topK, topP, minP, repetitionPenalty, ...sampling } = request.sampling ?? NO_SAMPLING;
  const { presencePenalty = 0, frequencyPenalty = 0, logitBias = [], outputFormat = null } = sampling;
  const is: Record<string, boolean> = {
    text: promptTokenIds.length === 0,
    tokens: promptTokenIds.length > 0,
    raw,
    chat: !raw,
    greedy: temperature === 0,
    sampled: temperature > 0,
    topK: topK > 0,
    topP: topP > 0,
    minP: minP > 0,
    repetitionPenalty: repetitionPenalty > 0,
    stop: stop.length > 0,
    ignoreEos,
    logprobs: logprobs > 0,
    slowReader: readMs > 0,
    messages: messages.length > 0,
    longAnswer: maxTokens > 16,
    refused: promptTokenIds.some((tokenId) => tokenId >= VOCABULARY) || promptTokenIds.length > MAX_PROMPT,
    presencePenalty: presencePenalty !== 0,
    frequencyPenalty: frequencyPenalty !== 0,
    logitBias: logitBias.length > 0,
    promptLogprobs: request.promptLogprobs === true,
    specialTokens: request.showSpecialTokens === true,
    noToken: maxTokens === 0,
    outputFormat: outputFormat !== null,
    emptyMessage: messages.some(({ content }) => content === ''),
    cancelled: cancelAfterMs !== null,
    oneToken: maxTokens === 1,
    longPrompt: Math.max(promptTokenIds.length, text.length) >= LONG_PROMPT,
  };
  return Object.keys(is).filter((kind) => is[kind]);
}

function yesNo(is: boolean): (typeof YES_NO)[number] {
  return is ? 'yes' : 'no';
}
