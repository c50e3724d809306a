import type { Logger } from '../../shared/base/log/logger.js';
import type { Placement } from '../../shared/wire/messages.js';
import { isBeyondShadow } from './placed-address.js';
import type { ShadowLink } from './shadow-link.js';
import type { WorkerLink } from './worker-link.js';

/** Warns of workers that the shadow in use cannot reach, of each once. */
export class UnreachableWorkers {
  private warned: { shadow: ShadowLink; workers: WeakSet<WorkerLink> } | null = null;

  constructor(private readonly log: Logger) {}

  /** `placed`: the workers of the placement. */
  check(shadow: ShadowLink, placement: Placement, placed: ReadonlyMap<string, WorkerLink>): void {
    if (this.warned?.shadow !== shadow) this.warned = { shadow, workers: new WeakSet() };
    const { workers } = this.warned;
    for (const { id, address } of placement.workers) {
      const link = placed.get(id);
      if (link === undefined || workers.has(link) || !isBeyondShadow(shadow.address, address)) continue;
      workers.add(link);
      this.log.warn('shadow cannot reach worker', {
        shadow: shadow.id,
        worker: id,
        address,
        reason:
          'main knows the worker by a loopback address, and the shadow is on another machine: start the worker with ' +
          "--advertise-host and its machine's address (host in cluster.yaml)",
      });
    }
  }
}
