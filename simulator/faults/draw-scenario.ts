import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { drawRequests } from './draw-requests.js';
import { drawTheme, modelsOf, nodesWanted, withTheme } from './draw-theme.js';
import { withAuthority } from './draw-trust.js';
import { drawLink, drawNodes, drawPace } from './draw-world.js';
import {
  ANY_FAULTS,
  BUSY_MS,
  type Fault,
  type FaultKind,
  MODEL_WITH_HEAD,
  MODELS_OF_PARTS,
  type Scenario,
  type ScenarioModel,
  type ScenarioNode,
  type Theme,
} from './scenario.js';
import { MAIN_ID } from '../simulate/cluster-set-up.js';

/** Longest duration of a fault. */
const LONGEST_FAULT_MS = 2500;
/** Durations of stops that are longer than any time limit of the process, or of others that wait for it. */
const LONG_STOPS_MS = [8000, 35_000, 70_000, 200_000] as const;

/** Draws the scenario of a seed. Pure. */
export function drawScenario(seed: number): Scenario {
  const random = new SeededRandom(seed);
  const theme = drawTheme(random.fork('theme'));
  const model = drawModel(random, theme);
  const nodes = drawNodes(random.fork('nodes'), model, nodesWanted(theme));
  const requests = drawRequests(random.fork('requests'), nodes, model);
  const faults = drawFaults(random.fork('faults'), nodes);
  const drawn = {
    seed,
    theme,
    hasAuthority: false,
    model,
    nodes,
    link: drawLink(random.fork('link')),
    pace: drawPace(random.fork('pace')),
    requests,
    faults,
    restsMs: [],
    calmMs: 0,
  };
  const withFaults = withLiar(random.fork('liar'), withTheme(random.fork('of the theme'), drawn));
  const scenario = withDrains(random.fork('drains'), withAuthority(random.fork('authority'), withFaults));
  return { ...scenario, calmMs: calmFrom(scenario.faults) };
}

/** Models that are drawn aside, so that the others are drawn as before: the share of the scenarios that have one of them. */
const DRAWN_ASIDE: readonly { name: string; share: number; models: readonly ScenarioModel[] }[] = [
  { name: 'head', share: 0.15, models: [MODEL_WITH_HEAD] },
  { name: 'parts', share: 0.15, models: MODELS_OF_PARTS },
];

function drawModel(random: SeededRandom, theme: Theme): ScenarioModel {
  const models = modelsOf(theme);
  const isAside = (model: ScenarioModel): boolean => DRAWN_ASIDE.some((aside) => aside.models.includes(model));
  let drawn = random.pick(models.filter((one) => !isAside(one)));
  for (const { name, share, models: all } of DRAWN_ASIDE) {
    const own = random.fork(name);
    const possible = all.filter((one) => models.includes(one));
    if (possible.length > 0 && own.chance(share)) drawn = own.pick(possible);
  }
  return drawn;
}

/** Share of the clusters that verify executions in which a worker lies. */
const LIARS = 0.6;

/** A worker may give wrong finite numbers for some time, if main verifies executions. */
function withLiar(random: SeededRandom, scenario: Scenario): Scenario {
  const main = scenario.nodes[0]?.settings.main;
  const workers = scenario.nodes.flatMap(({ settings: { role, id } }) => (role === 'worker' ? [id] : []));
  if (main === undefined || main.verifyShare === 0 || main.experts === 'local' || !random.chance(LIARS))
    return scenario;
  const [atMs, forMs] = [random.int(BUSY_MS), 200 + random.int(LONGEST_FAULT_MS)];
  const seed = random.int(2 ** 31);
  const node = random.pick(workers);
  // Workers with false values are set aside, too. One must be left to answer.
  const isLeft = (id: string): boolean =>
    id !== node && !scenario.faults.some((fault) => fault.kind === 'falseValues' && fault.node === id);
  if (!workers.some(isLeft)) return scenario;
  const lies: Fault = { kind: 'falseNumbers', atMs, forMs, node, peer: '', seed };
  return { ...scenario, faults: [...scenario.faults, lies] };
}

/** Share of the clusters of which nodes are drained. */
const DRAINED = 0.4;

/** An operator may drain one or two nodes for some time, perhaps all workers. */
function withDrains(random: SeededRandom, scenario: Scenario): Scenario {
  if (!random.chance(DRAINED)) return scenario;
  const nodes = scenario.nodes.filter(({ settings }) => settings.role !== 'main').map(({ settings }) => settings.id);
  const drains = Array.from({ length: 1 + random.int(2) }, (): Fault => {
    const [atMs, forMs, node] = [random.int(BUSY_MS), 1 + random.int(LONGEST_FAULT_MS), random.pick(nodes)];
    return { kind: 'drain', atMs, forMs, node, peer: '', seed: random.int(2 ** 31) };
  });
  const faults = [...scenario.faults, ...drains].sort((left, right) => left.atMs - right.atMs);
  return { ...scenario, faults };
}

function calmFrom(faults: readonly Fault[]): number {
  return Math.max(BUSY_MS, ...faults.map(({ atMs, forMs }) => atMs + forMs));
}

function drawFaults(random: SeededRandom, nodes: readonly ScenarioNode[]): Fault[] {
  const count = random.pick([0, 0, 1, 1, 2, 3, 4, 6]);
  const faults = Array.from({ length: count }, () => drawFault(random, random.pick(ANY_FAULTS), nodes)).flatMap(
    (fault) => (fault.kind === 'wallClockJump' && random.chance(0.6) ? jumpAndRestart(random, fault) : [fault]),
  );
  if (random.chance(LONG_STOPS)) faults.push(...longStop(random, nodes));
  return faults.sort((left, right) => left.atMs - right.atMs);
}

function drawFault(random: SeededRandom, kind: FaultKind, nodes: readonly ScenarioNode[]): Fault {
  const ids = nodes.map(({ settings }) => settings.id);
  const others = ids.filter((id) => id !== MAIN_ID);
  const hasOwnWorker = nodes.some(({ settings }) => settings.role === 'main' && settings.main.experts !== 'workers');
  // Main gets fewer faults: most work ends with it.
  const node = random.chance(0.15) ? MAIN_ID : random.pick(others);
  const peer = random.pick(ids.filter((id) => id !== node));
  const forMs = random.chance(0.5) ? 1 + random.int(400) : random.int(LONGEST_FAULT_MS);
  return {
    kind,
    atMs: random.int(BUSY_MS),
    forMs,
    node: nodeFor(kind, node, { others, hasOwnWorker }, random),
    peer,
    seed: random.int(2 ** 31),
  };
}

/** Share of scenarios with a long stop. */
const LONG_STOPS = 0.15;

/**
 * A long stop, as from a laptop's lid, a paused virtual machine or heavy swapping: mostly of main, sometimes of a worker or a shadow,
 * sometimes of all nodes at once.
 */
function longStop(random: SeededRandom, nodes: readonly ScenarioNode[]): Fault[] {
  const ids = nodes.map(({ settings }) => settings.id);
  const whose = random.pick(['main', 'main', 'one', 'all'] as const);
  const stopped = { main: [MAIN_ID], one: [random.pick(ids)], all: ids }[whose];
  const [atMs, forMs] = [random.int(BUSY_MS), random.pick(LONG_STOPS_MS)];
  return stopped.map((node) => ({ kind: 'stopAndContinue', atMs, forMs, node, peer: '', seed: 0 }));
}

/** Main starts again on a machine whose clock has been changed, perhaps back. */
function jumpAndRestart(random: SeededRandom, jump: Fault): Fault[] {
  const restart = { ...jump, kind: 'restart' as const, atMs: jump.atMs + random.int(300), forMs: 1 + random.int(400) };
  return [jump, restart].map((fault) => ({ ...fault, node: MAIN_ID }));
}

const OF_WORKERS: ReadonlySet<FaultKind> = new Set([
  'failingReads',
  'slowReads',
  'flippedBits',
  'wrongPieces',
  'falseHoldings',
  'falseValues',
]);

/** A peer that has given wrong bytes is avoided for longer than a scenario lasts. */
const GIVES_WRONG_BYTES: ReadonlySet<FaultKind> = new Set(['flippedBits', 'wrongPieces', 'falseHoldings']);

/** Chooses the node of a fault: some faults are possible for one role only. */
function nodeFor(
  kind: FaultKind,
  drawn: string,
  { others, hasOwnWorker }: { others: readonly string[]; hasOwnWorker: boolean },
  random: SeededRandom,
): string {
  const workers = others.filter((id) => id.startsWith('w'));
  // Main's own pack is not damaged: others fetch from it.
  const readers = !GIVES_WRONG_BYTES.has(kind) && hasOwnWorker ? [...workers, MAIN_ID] : workers;
  if (OF_WORKERS.has(kind)) return random.pick(readers);
  // A stop in order is most interesting at main, which has answers to finish.
  if (kind === 'leave' && random.chance(0.3)) return MAIN_ID;
  return kind === 'secondMain' ? MAIN_ID : drawn;
}
