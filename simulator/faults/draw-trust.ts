import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { MAIN_ID } from '../simulate/cluster-set-up.js';
import {
  BUSY_MS,
  type Fault,
  type FaultKind,
  type Scenario,
  type ScenarioNode,
  type TrustFaultKind,
} from './scenario.js';

/** Share of the clusters that have an authority. */
const WITH_AUTHORITY = 1 / 3;
const LONGEST_MS = 1500;
/** Time between the last change of the roster and a start of main with an earlier one. */
const AFTER_CHANGES_MS = 50;

const KINDS = [
  ...(['letIn', 'letIn', 'renewal', 'renewal', 'removal', 'removalAndReturn', 'removalAndReturn'] as const),
  ...(['strangerWithoutCertificate', 'strangerOfOtherAuthority', 'strangerWithRemovedKey'] as const),
  ...(['strangerWithOthersKey', 'strangerWithOthersKey'] as const),
] as const;
const STRANGERS_ONLY = [
  'renewal',
  'strangerWithoutCertificate',
  'strangerOfOtherAuthority',
  'strangerWithRemovedKey',
  'strangerWithOthersKey',
] as const;
const CHANGES: ReadonlySet<FaultKind> = new Set<TrustFaultKind>([
  'letIn',
  'renewal',
  'endOfOldKeys',
  'removal',
  'removalAndReturn',
]);

/** After these faults main may set a worker aside for longer than a scenario lasts, so no other worker is removed for good. */
const SET_ASIDE: ReadonlySet<FaultKind> = new Set([
  'falseValues',
  'falseNumbers',
  'flippedBits',
  'failingReads',
  'deviceLost',
  'memoryRefused',
]);

/** A share of the clusters has an authority, and events that only such a cluster has. Pure. */
export function withAuthority(random: SeededRandom, scenario: Scenario): Scenario {
  if (!random.chance(WITH_AUTHORITY)) return scenario;
  // A scenario without other faults often stays one that nothing disturbs: then every account must be exact.
  const kinds = scenario.faults.length === 0 && random.chance(0.5) ? STRANGERS_ONLY : KINDS;
  const drawn = Array.from({ length: 2 + random.int(5) }, () => drawFault(random, random.pick(kinds), scenario));
  const faults = kinds === STRANGERS_ONLY ? drawn : drawn.flatMap((fault) => withEndOfOldKey(random, fault));
  const changes = faults.filter(({ kind }) => CHANGES.has(kind));
  if (changes.length > 0 && random.chance(0.4)) faults.push(oldRoster(random, changes));
  return { ...scenario, hasAuthority: true, faults: [...scenario.faults, ...faults].sort(byTime) };
}

/** Most renewals are followed by the end of the key before. */
function withEndOfOldKey(random: SeededRandom, fault: Fault): Fault[] {
  if (fault.kind !== 'renewal' || !random.chance(0.7)) return [fault];
  const end: Fault = { ...fault, kind: 'endOfOldKeys', atMs: fault.atMs + 1 + random.int(LONGEST_MS), node: MAIN_ID };
  return [fault, end];
}

function byTime(left: Fault, right: Fault): number {
  return left.atMs - right.atMs;
}

function drawFault(random: SeededRandom, drawn: TrustFaultKind, scenario: Scenario): Fault {
  const kind = drawn === 'removal' && !mayRemove(scenario) ? 'removalAndReturn' : drawn;
  const [atMs, forMs] = [random.int(BUSY_MS), 1 + random.int(LONGEST_MS)];
  const node = random.pick(nodesFor(kind, scenario));
  return { kind, atMs, forMs, node, peer: '', seed: random.int(2 ** 31) };
}

/** True if a node other than the first worker can go for good: the first worker fits on its device and does not fetch its experts from others. */
function mayRemove({ nodes, faults }: Scenario): boolean {
  return nodes.some(isRemovable) && !faults.some(({ kind }) => SET_ASIDE.has(kind));
}

/** A node that fetches would wait in its start for ever. */
function isRemovable({ settings: { id, role }, fetches }: ScenarioNode): boolean {
  return role !== 'main' && id !== FIRST_WORKER && !fetches;
}

const FIRST_WORKER = 'w0';

/** Ids of the nodes to which an event may happen. */
function nodesFor(kind: TrustFaultKind, { nodes }: Scenario): string[] {
  const ids = (isOne: (node: ScenarioNode) => boolean): string[] =>
    nodes.filter(isOne).map(({ settings }) => settings.id);
  switch (kind) {
    case 'letIn':
      return ids(({ settings }) => settings.role === 'worker');
    case 'renewal':
    case 'removalAndReturn':
      return ids(({ settings }) => settings.role !== 'main');
    case 'removal':
      return ids(isRemovable);
    case 'endOfOldKeys':
    case 'oldRoster':
      return [MAIN_ID];
    case 'strangerWithoutCertificate':
    case 'strangerOfOtherAuthority':
    case 'strangerWithRemovedKey':
    case 'strangerWithOthersKey':
      return ids(() => true);
  }
}

/** Main starts with a roster of before, when all changes are over: two mains would sign for the cluster otherwise. */
function oldRoster(random: SeededRandom, changes: readonly Fault[]): Fault {
  const overMs = Math.max(...changes.map(({ atMs, forMs }) => atMs + forMs));
  const forMs = 200 + random.int(LONGEST_MS);
  return {
    kind: 'oldRoster',
    atMs: overMs + AFTER_CHANGES_MS,
    forMs,
    node: MAIN_ID,
    peer: '',
    seed: random.int(2 ** 31),
  };
}
