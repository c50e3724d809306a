import type { NodeStatus } from '../../shared/rpc/messages.js';
import type { Violation } from './accounts/violation.js';
import type { ScenarioWorld } from './scenario-world.js';
import { MAIN, type Scenario } from './scenario.js';
import type { Recorded } from './accounts/recorder.js';
import { WorkerAccount } from './accounts/worker-account.js';

/** Latest status of each node, by host. */
export type Statuses = ReadonlyMap<string, NodeStatus>;

/** Without requests: each worker's own figures are what its device has done. */
export function checkLoads(scenario: Scenario, world: ScenarioWorld, statuses: Statuses): Violation[] {
  const problems: string[] = [];
  for (const { settings } of scenario.nodes) {
    const status = statuses.get(settings.id);
    const seen = world.devices.get(settings.id)?.loaded;
    if (settings.role !== 'worker' || status === undefined || seen === undefined) continue;
    const { loads, evictions, storageReadBytes } = status;
    if (loads !== seen.loads || storageReadBytes !== seen.readBytes)
      problems.push(
        `${settings.id} tells of ${loads} loads of ${storageReadBytes} bytes, its device made ${seen.loads} of ${seen.readBytes}`,
      );
    if (settings.worker.pools === null && evictions !== loads)
      problems.push(`${settings.id} keeps nothing and has dropped ${evictions} of ${loads} experts that it loaded`);
  }
  return problems.map((detail) => ({ invariant: 'accounts add up', detail }));
}

/** Where nothing went wrong: reloads, executions and late predictions are what the messages make them. */
export function checkWorkers(
  scenario: Scenario,
  events: readonly Recorded[],
  before: Statuses,
  after: Statuses,
): Violation[] {
  if (events.some((event) => event.kind === 'message' && isTrouble(event.message.kind))) return [];
  const problems: string[] = [];
  for (const { settings } of scenario.nodes) {
    const [first, last] = [before.get(settings.id), after.get(settings.id)];
    if (settings.role !== 'worker' || settings.worker.pools !== null) continue;
    if (first === undefined || last === undefined || first.identity.bootId !== last.identity.bootId) continue;
    const account = new WorkerAccount(settings.id, MAIN);
    for (const event of events) account.take(event);
    for (const name of ['reloads', 'executions', 'latePredictions'] as const) {
      const told = last[name] - first[name];
      if (told !== account[name]) problems.push(`${settings.id} tells of ${told} ${name}; there were ${account[name]}`);
    }
  }
  return problems.map((detail) => ({ invariant: 'accounts add up', detail }));
}

/** Another placement, or a fault, makes a worker forget what it was told. */
function isTrouble(kind: string): boolean {
  return kind === 'error' || kind === 'placement' || kind === 'welcome';
}
