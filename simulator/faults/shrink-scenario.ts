import type { SamplingMessage } from '../../shared/wire/messages.js';
import { simplerSettings } from './drawn-rows.js';
import { BUSY_MS, isTrustFault, type Scenario, type ScenarioNode, type ScenarioRequest } from './scenario.js';
import { MAIN_ID } from '../simulate/cluster-set-up.js';

/**
 * The smallest scenario found that still breaks: with fewer faults, requests and nodes, and with simpler settings. `breaks` runs a scenario; it
 * is called `tries` times at most.
 */
export async function shrinkScenario(
  scenario: Scenario,
  breaks: (smaller: Scenario) => Promise<boolean>,
  tries: number,
): Promise<Scenario> {
  let smallest = scenario;
  let left = tries;
  for (let shrunk = true; shrunk;) {
    shrunk = false;
    for (const step of STEPS) {
      // After a success the same step may work at other places.
      for (let place = 0; ; place++) {
        const smaller = step(smallest, place);
        if (smaller === null) break;
        if (left-- === 0) return smallest;
        if (!(await breaks(smaller))) continue;
        smallest = smaller;
        shrunk = true;
        place--;
      }
    }
  }
  return smallest;
}

/** One way to make a scenario smaller, at one of its places. Null: the place does not exist. */
type Step = (scenario: Scenario, place: number) => Scenario | null;

const PLAIN_NODES: readonly ((node: ScenarioNode) => ScenarioNode)[] = [
  (node) => ({ ...node, startMs: 0 }),
  (node) => ({ ...node, wallSkewMs: 0 }),
  (node) => ({ ...node, isNewer: false }),
  (node) => ({ ...node, fetches: false }),
  ...simplerSettings().map((simpler) => (node: ScenarioNode) => ({ ...node, settings: simpler(node.settings) })),
];

const PLAIN_REQUESTS: readonly ((request: ScenarioRequest) => ScenarioRequest)[] = [
  (drawn) => ({ ...drawn, cancelAfterMs: null }),
  (drawn) => ({ ...drawn, readMs: 0 }),
  (drawn) => ({ ...drawn, begins: null, follows: null }),
  (drawn) => withRequest(drawn, { stop: [], logprobs: 0, promptLogprobs: false }),
  (drawn) => withRequest(drawn, { promptLogprobs: false, showSpecialTokens: false }),
  (drawn) => withSampling(drawn, { outputFormat: null }),
  (drawn) => withSampling(drawn, { logitBias: [] }),
  (drawn) => withSampling(drawn, { repetitionPenalty: 0, presencePenalty: 0, frequencyPenalty: 0 }),
  (drawn) => withRequest(drawn, { raw: true }),
  (drawn) =>
    (drawn.request.sampling?.outputFormat ?? null) === null ? withRequest(drawn, { ignoreEos: true }) : drawn,
  (drawn) => withSampling(drawn, { temperature: 0 }),
  (drawn) => withRequest(drawn, { maxTokens: Math.ceil(drawn.request.maxTokens / 2) }),
];

const STEPS: readonly Step[] = [
  (scenario, place) => (place === 0 && scenario.hasAuthority ? withoutAuthority(scenario) : null),
  (scenario, place) => (place === 0 && scenario.faults.length > 1 ? withoutFaults(scenario, () => true) : null),
  (scenario, place) => (place < scenario.faults.length ? withoutFaults(scenario, (_, index) => index === place) : null),
  (scenario, place) =>
    place < scenario.requests.length
      ? { ...scenario, requests: scenario.requests.filter((_, index) => index !== place) }
      : null,
  withoutNode,
  (scenario, place) =>
    changed(scenario, place, PLAIN_NODES, (plain) => ({ ...scenario, nodes: scenario.nodes.map(plain) })),
  (scenario, place) =>
    changed(scenario, place, PLAIN_REQUESTS, (plain) => ({ ...scenario, requests: scenario.requests.map(plain) })),
];

/** Applies the change with index `place`, counting only those that have an effect. */
function changed<Plain>(
  scenario: Scenario,
  place: number,
  plains: readonly Plain[],
  apply: (plain: Plain) => Scenario,
): Scenario | null {
  const different = plains.map(apply).filter((plain) => JSON.stringify(plain) !== JSON.stringify(scenario));
  return different[place] ?? null;
}

function withRequest(drawn: ScenarioRequest, changes: Partial<ScenarioRequest['request']>): ScenarioRequest {
  return { ...drawn, request: { ...drawn.request, ...changes } };
}

function withSampling(drawn: ScenarioRequest, changes: Partial<SamplingMessage>): ScenarioRequest {
  const { sampling } = drawn.request;
  return withRequest(drawn, { sampling: sampling === null ? null : { ...sampling, ...changes } });
}

/** A cluster without an authority has none of its events. */
function withoutAuthority(scenario: Scenario): Scenario {
  return { ...withoutFaults(scenario, ({ kind }) => isTrustFault(kind)), hasAuthority: false };
}

/** Removes a node other than main and the last worker. */
function withoutNode(scenario: Scenario, place: number): Scenario | null {
  const { nodes } = scenario;
  const workers = nodes.filter(({ settings }) => settings.role === 'worker').length;
  const removable = nodes.filter(
    ({ settings: { id, role } }) => id !== MAIN_ID && !(role === 'worker' && workers === 1),
  );
  const gone = removable[place]?.settings.id;
  if (gone === undefined) return null;
  const fewer = withoutFaults(scenario, ({ node, peer }) => node === gone || peer === gone);
  return { ...fewer, nodes: nodes.filter(({ settings }) => settings.id !== gone) };
}

function withoutFaults(
  scenario: Scenario,
  isGone: (fault: Scenario['faults'][number], index: number) => boolean,
): Scenario {
  const faults = scenario.faults.filter((fault, index) => !isGone(fault, index));
  return { ...scenario, faults, calmMs: Math.max(BUSY_MS, ...faults.map(({ atMs, forMs }) => atMs + forMs)) };
}
