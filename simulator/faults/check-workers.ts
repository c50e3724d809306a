import { ownWorkerId } from '../../main-node/own-worker.js';
import type { NodeStatus } from '../../shared/wire/messages.js';
import type { Violation } from './accounts/violation.js';
import type { ScenarioWorld } from './scenario-world.js';
import type { Scenario } from './scenario.js';
import type { Recorded } from './accounts/recorder.js';
import { WorkerAccount } from './accounts/worker-account.js';

/** Latest status of each node, by host. */
export type Statuses = ReadonlyMap<string, NodeStatus>;

/** Call without requests: each worker must report exactly the loads and bytes of its device. */
export function checkLoads(scenario: Scenario, world: ScenarioWorld, statuses: Statuses): Violation[] {
  const problems: string[] = [];
  for (const { id, host, keepsExperts } of workersOf(scenario)) {
    const status = statuses.get(id);
    const seen = world.devices.get(host)?.loaded;
    if (status === undefined || seen === undefined) continue;
    const { loads, evictions, storageReadBytes } = status;
    if (loads !== seen.loads || storageReadBytes !== seen.readBytes)
      problems.push(
        `${id} tells of ${loads} loads of ${storageReadBytes} bytes, its device made ${seen.loads} of ${seen.readBytes}`,
      );
    if (!keepsExperts && evictions !== loads)
      problems.push(`${id} keeps nothing and has dropped ${evictions} of ${loads} experts that it loaded`);
  }
  return problems.map((detail) => ({ invariant: 'accounts add up', detail }));
}

/** In a time without faults, reloads, executions and late predictions must follow from the messages. `layers`: expert layers of the model. */
export function checkWorkers(
  scenario: Scenario,
  events: readonly Recorded[],
  { before, after, layers }: { before: Statuses; after: Statuses; layers: number },
): Violation[] {
  if (events.some((event) => event.kind === 'message' && isTrouble(event.message.kind))) return [];
  const problems: string[] = [];
  for (const { id, keepsExperts } of workersOf(scenario)) {
    const [first, last] = [before.get(id), after.get(id)];
    if (keepsExperts || first === undefined || last === undefined) continue;
    if (first.identity.bootId !== last.identity.bootId) continue;
    const account = new WorkerAccount(id, layers);
    for (const event of events) account.take(event);
    for (const name of ['reloads', 'executions', 'latePredictions'] as const) {
      const reported = last[name] - first[name];
      if (reported !== account[name]) problems.push(`${id} tells of ${reported} ${name}; there were ${account[name]}`);
    }
  }
  return problems.map((detail) => ({ invariant: 'accounts add up', detail }));
}

/** A worker of a scenario, on its own host or in main's process (main.experts). */
interface ScenarioWorker {
  id: string;
  host: string;
  keepsExperts: boolean;
}

function workersOf({ nodes }: Scenario): ScenarioWorker[] {
  return nodes.flatMap(({ settings: { id, role, main, worker, device } }): ScenarioWorker[] => {
    const keepsExperts = worker.pools !== null || worker.cacheBytes > 0;
    if (role === 'worker') return [{ id, host: id, keepsExperts }];
    if (role !== 'main' || main.experts === 'workers') return [];
    // On a device with a budget it caches experts in the memory that answers leave.
    return [{ id: ownWorkerId(id), host: id, keepsExperts: keepsExperts || device.memoryBudgetBytes > 0 }];
  });
}

/** True if the message means that a worker forgets its announcements: a new placement or a fault. */
function isTrouble(kind: string): boolean {
  return kind === 'error' || kind === 'placement' || kind === 'welcome';
}
