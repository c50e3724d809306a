import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { BLOCK_POSITIONS, contextMemoryOf, MODELS_OF_LONG_CONTEXTS } from './draw-budget.js';
import { drawRequest, drawTokens } from './draw-request.js';
import type { WantedNodes } from './draw-world.js';
import {
  type Fault,
  type FaultKind,
  type Scenario,
  SCENARIO_MODELS,
  type ScenarioModel,
  type ScenarioRequest,
  type Theme,
} from './scenario.js';
import { MAIN_ID } from '../simulate/cluster-set-up.js';

/** Most scenarios have no theme. */
const DRAWN_THEMES: readonly Theme[] = [
  'none',
  'none',
  'none',
  'none',
  'none',
  'none',
  'shortMemory',
  'manyFetches',
  'endingMembers',
  'endingMembers',
  'shadowBehind',
];

const ANY_NODES: WantedNodes = { leastWorkers: 1, leastShadows: 0, fetches: 0.15 };
/** Themes that need more nodes or other nodes than usual. */
const NODES_OF: Partial<Record<Theme, WantedNodes>> = {
  manyFetches: { leastWorkers: 3, leastShadows: 0, fetches: 0.8 },
  endingMembers: { leastWorkers: 2, leastShadows: 1, fetches: 0.1 },
  shadowBehind: { leastWorkers: 1, leastShadows: 1, fetches: 0 },
};

/** Share of the scenarios without another theme in which main starts anew. */
const RESTARTS_SHARE = 0.25;

export function drawTheme(random: SeededRandom): Theme {
  const theme = random.pick(DRAWN_THEMES);
  return theme === 'none' && random.fork('mainRestarts').chance(RESTARTS_SHARE) ? 'mainRestarts' : theme;
}

/** The models of a theme: those whose sequences have several blocks of memory, or rows that main can store. */
export function modelsOf(theme: Theme): readonly ScenarioModel[] {
  if (theme === 'shortMemory') return MODELS_OF_LONG_CONTEXTS;
  return theme === 'mainRestarts' ? SCENARIO_MODELS.filter((model) => !RECURRENT.has(model)) : SCENARIO_MODELS;
}

const RECURRENT: ReadonlySet<ScenarioModel> = new Set([
  'chosen-pools',
  'delta-nets',
  'short-convolutions',
  'state-spaces',
]);

export function nodesWanted(theme: Theme): WantedNodes {
  return NODES_OF[theme] ?? ANY_NODES;
}

/** Changes the scenario so that the case of its theme happens. Pure. */
export function withTheme(random: SeededRandom, scenario: Scenario): Scenario {
  switch (scenario.theme) {
    case 'none':
      return scenario;
    case 'shortMemory':
      return withShortMemory(random, scenario);
    case 'manyFetches':
      return withManyFetches(random, scenario);
    case 'endingMembers':
      return withEndingMembers(random, scenario);
    case 'shadowBehind':
      return withShadowBehind(random, scenario);
    case 'mainRestarts':
      return withMainRestarts(random, scenario);
  }
}

/** A pace so slow that most events come while a pass runs. */
const SLOW_PACE = { denseMs: 1, expertMs: 0.5, lmHeadMs: 0.5, loadMs: 0.5 };
/** Tokens that the oldest answer may add while the prompts of the others run. */
const OLDEST_TO_BLOCK_END = 12;

/**
 * Draws prompts that nearly fill a block each, and answers that go beyond it: main's memory holds them all until then. The oldest answer
 * reaches the end of its block last, after the others have taken the rest of the memory.
 */
function withShortMemory(random: SeededRandom, scenario: Scenario): Scenario {
  const contextMemoryBytes = contextMemoryOf(scenario.model, 0);
  const maxActiveSequences = random.pick(['auto', 4, 16] as const);
  const requests = Array.from({ length: 3 }, (_, index) => {
    const toBlockEnd = index === 0 ? OLDEST_TO_BLOCK_END + random.int(4) : 1 + random.int(3);
    const prompt = drawTokens(random, BLOCK_POSITIONS - toBlockEnd);
    return requestFor(random, prompt, { atMs: 150 + index, maxTokens: OLDEST_TO_BLOCK_END + 12 + random.int(6) });
  });
  return {
    ...scenario,
    nodes: withSettings(scenario, (settings) => ({
      ...settings,
      main: {
        ...settings.main,
        contextMemoryBytes,
        prefillRows: 64,
        maxActiveSequences,
        maxQueuedRequests: 16,
      },
      batching: { ...settings.batching, maxRows: 64 },
      device: settings.role === 'main' ? { ...settings.device, memoryBudgetBytes: 0 } : settings.device,
    })),
    pace: SLOW_PACE,
    requests,
    faults: random.chance(0.6) ? [] : scenario.faults.filter(({ node }) => node !== MAIN_ID).slice(0, 1),
  };
}

const FAULTS_OF_FETCHES: readonly FaultKind[] = [
  'kill',
  'restart',
  'restart',
  'leave',
  'join',
  'shortPieces',
  'shortPieces',
  'wrongPieces',
  'wrongPieces',
  'falseHoldings',
  'falseHoldings',
  'flippedBits',
  'cutBothWays',
  'stalledLink',
  'slowLink',
  'changeAddress',
];

/** Workers fetch at the same time from main and from each other, while nodes start, stop and give false pack pieces. */
function withManyFetches(random: SeededRandom, scenario: Scenario): Scenario {
  const workers = idsOf(scenario, 'worker');
  const faults = Array.from({ length: 2 + random.int(4) }, (): Fault => {
    const kind = random.pick(FAULTS_OF_FETCHES);
    const node = random.pick(workers);
    const peer = random.pick([MAIN_ID, ...workers.filter((id) => id !== node)]);
    const isOfMain = (kind === 'restart' || kind === 'shortPieces') && random.chance(0.2);
    const [atMs, forMs] = [random.int(700), 1 + random.int(1200)];
    return { kind, atMs, forMs, node: isOfMain ? MAIN_ID : node, peer, seed: random.int(2 ** 31) };
  });
  return { ...scenario, faults, link: { ...scenario.link, bytesPerMs: random.pick([300, 1000, 5000]) } };
}

/** Answers share passes; some are cancelled while the passes run, and some fail. */
function withEndingMembers(random: SeededRandom, scenario: Scenario): Scenario {
  const atMs = 300 + random.int(100);
  const requests = Array.from({ length: 5 + random.int(3) }, () => {
    const drawn = requestFor(random, drawTokens(random, 2 + random.int(16)), { atMs, maxTokens: 8 + random.int(8) });
    return { ...drawn, cancelAfterMs: random.chance(0.4) ? 20 + random.int(250) : null };
  });
  const workers = idsOf(scenario, 'worker');
  // Main announces the experts that shadow predicts for a joint pass, and releases them if the pass fails.
  const isPredicted = random.chance(0.7);
  const kinds: readonly FaultKind[] = ['memoryRefused', 'falseValues', 'failingReads', 'restart'];
  const faults = Array.from({ length: 2 + random.int(3) }, (_, index): Fault => {
    const kind = index < 2 ? 'memoryRefused' : random.pick(kinds);
    const node = kind === 'memoryRefused' ? MAIN_ID : random.pick(workers);
    return {
      kind,
      atMs: atMs + 20 + random.int(200),
      forMs: 20 + random.int(60),
      node,
      peer: '',
      seed: random.int(2 ** 31),
    };
  });
  return {
    ...scenario,
    nodes: withSettings(scenario, (settings) => ({
      ...settings,
      main: {
        ...settings.main,
        maxActiveSequences: 16,
        maxQueuedRequests: 16,
        contextMemoryBytes: 'auto',
        prefillRows: 64,
      },
      batching: { ...settings.batching, enabled: true, maxRows: 64 },
      prediction: isPredicted ? { ...settings.prediction, source: 'sep' } : settings.prediction,
    })),
    pace: { ...SLOW_PACE, denseMs: 3 },
    requests,
    faults,
  };
}

/** A shadow is slow, stopped or gets messages late, and recovers, while long answers run. */
function withShadowBehind(random: SeededRandom, scenario: Scenario): Scenario {
  const requests = Array.from({ length: 1 + random.int(3) }, () => {
    const times = { atMs: 150 + random.int(400), maxTokens: 14 + random.int(14) };
    return requestFor(random, drawTokens(random, 2 + random.int(12)), times);
  });
  const [shadow = MAIN_ID] = idsOf(scenario, 'shadow');
  const kinds: readonly FaultKind[] = ['slowDevice', 'slowDevice', 'stopAndContinue', 'slowLink', 'cutOneWay'];
  const faults = Array.from({ length: 1 + random.int(3) }, (): Fault => {
    const [atMs, forMs] = [150 + random.int(600), 20 + random.int(500)];
    return { kind: random.pick(kinds), atMs, forMs, node: shadow, peer: MAIN_ID, seed: random.int(2 ** 31) };
  });
  return {
    ...scenario,
    nodes: withSettings(scenario, (settings) => ({
      ...settings,
      prediction: { ...settings.prediction, source: 'sep' },
      main: { ...settings.main, maxQueuedRequests: 16 },
    })),
    pace: { ...SLOW_PACE, loadMs: random.pick([1, 5]) },
    requests,
    faults,
  };
}

/** Tokens of a prompt with which all prompts begin: more than one block of main's prefix store has. */
const RESTARTED_PROMPTS = [70, 90, 130];
/** Most time that main is away. */
const AWAY_MS = 200;

/** Main keeps rows on its disk and is lost; then prompts come that begin like those of before. */
function withMainRestarts(random: SeededRandom, scenario: Scenario): Scenario {
  const beginning = drawTokens(random, random.pick(RESTARTED_PROMPTS));
  const request = (atMs: number): ScenarioRequest => {
    const prompt = [...beginning, ...drawTokens(random, random.int(12))];
    return requestFor(random, prompt, { atMs, maxTokens: 4 + random.int(6) });
  };
  const lostMs = 900 + random.int(600);
  const before = Array.from({ length: 1 + random.int(2) }, (_, index) => request(150 + 40 * index));
  const after = Array.from({ length: 2 + random.int(3) }, () => request(lostMs + AWAY_MS + 500 + random.int(600)));
  const [kind, forMs] = [random.pick(['restart', 'restart', 'leave'] as const), 1 + random.int(AWAY_MS)];
  const others = random.chance(0.5) ? scenario.faults.slice(0, 1) : [];
  const prefixStoreBytes = random.pick([100_000, 1_073_741_824]);
  return {
    ...scenario,
    nodes: withSettings(scenario, (settings) => ({
      ...settings,
      main: { ...settings.main, prefixStoreBytes, reusePrefixes: true, prefillRows: 64, maxQueuedRequests: 16 },
      batching: { ...settings.batching, maxRows: 64 },
    })),
    requests: [...before, ...after],
    faults: [{ kind, atMs: lostMs, forMs, node: MAIN_ID, peer: '', seed: random.int(2 ** 31) }, ...others],
  };
}

/** A request that runs until it has all its tokens, even after an end token. */
function requestFor(
  random: SeededRandom,
  promptTokenIds: number[],
  { atMs, maxTokens }: { atMs: number; maxTokens: number },
): ScenarioRequest {
  const drawn = drawRequest(random);
  const sampling = drawn.sampling === null ? null : { ...drawn.sampling, outputFormat: null };
  const request = { ...drawn, text: '', messages: [], promptTokenIds, maxTokens, sampling, stop: [], ignoreEos: true };
  return { atMs, request, begins: null, follows: null, cancelAfterMs: null, readMs: 0 };
}

/** Changes the settings; all nodes start before the requests come. */
function withSettings({ nodes }: Scenario, change: (settings: NodeSettings) => NodeSettings): Scenario['nodes'] {
  return nodes.map((node) => ({ ...node, startMs: 0, settings: change(node.settings) }));
}

function idsOf({ nodes }: Scenario, role: NodeSettings['role']): string[] {
  return nodes.flatMap(({ settings }) => (settings.role === role ? [settings.id] : []));
}
