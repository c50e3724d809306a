import type { PlacedWorkers, WorkerOrders } from '../../main-node/cluster/placed-workers.js';
import type { Placement } from '../../shared/wire/messages.js';
import type { Announce, Release } from '../../shared/wire/messages.js';

/** Workers of a placement that record the messages to them and run nothing. */
export class RecordingWorkers implements Pick<PlacedWorkers, 'placement' | 'worker' | 'endSequence'> {
  readonly predictions: [id: string, announce: Announce][] = [];
  readonly releases: [id: string, release: Release][] = [];
  readonly ends: [id: string, sequence: number][] = [];

  constructor(public placement: Placement | null) {}

  worker(id: string): WorkerOrders {
    return {
      execute: () => Promise.reject(new Error('these workers run nothing')),
      sendAnnounce: (announce) => void this.predictions.push([id, announce]),
      sendRelease: (release) => void this.releases.push([id, release]),
      sendEnd: (sequence) => void this.ends.push([id, sequence]),
    };
  }

  endSequence(sequence: number): void {
    for (const { id } of this.placement?.workers ?? []) this.worker(id).sendEnd(sequence);
  }

  /** "worker position/layer experts" of each announcement. */
  get predicted(): string[] {
    return this.predictions.map(describe);
  }

  get released(): string[] {
    return this.releases.map(describe);
  }
}

function describe([id, { pass, layer, experts }]: [string, Announce | Release]): string {
  return `${id} ${pass.position}/${layer} ${experts.join()}`;
}
