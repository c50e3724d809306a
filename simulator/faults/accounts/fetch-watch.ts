import type { VirtualRuntime } from '../../../shared/base/runtime/virtual-runtime.js';
import type { MessageTap } from '../../network/channel.js';
import type { PackSources } from '../../network/pack-sources.js';

/** Longest time from the last pack piece of the last expert until the report: files are written meanwhile. */
const REPORTED_WITHIN_MS = 50;

interface Prospected {
  number: number;
  atMs: number;
}

/**
 * Checks that a worker reports to main at once when it has fetched all experts that it will need. It must not wait for its next status, because
 * main and others wait for the report. `runtimeOf`: runtime of the present process of a node; `standsStill`: nodes whose processes are
 * sometimes stopped.
 */
export class FetchWatch {
  readonly violations: string[] = [];
  private readonly prospected = new Map<string, Prospected>();

  constructor(
    private readonly runtimeOf: (node: string) => VirtualRuntime | undefined,
    private readonly sources: Pick<PackSources, 'lastMsOf'>,
    private readonly standsStill: ReadonlySet<string>,
  ) {}

  readonly messages: MessageTap = (way, from, to, message) => {
    if (way === 'arrived' && message.kind === 'prospect') {
      const runtime = this.runtimeOf(to);
      if (runtime !== undefined) this.prospected.set(to, { number: message.prospect.number, atMs: runtime.nowMs() });
    }
    if (way !== 'sent' || message.kind !== 'status') return;
    const prospected = this.prospected.get(from);
    if (prospected === undefined || message.status.fetchReadyFor !== prospected.number) return;
    this.prospected.delete(from);
    this.check(from, prospected);
  };

  private check(worker: string, { number, atMs }: Prospected): void {
    const runtime = this.runtimeOf(worker);
    if (runtime === undefined || this.standsStill.has(worker)) return;
    const lateMs = runtime.nowMs() - Math.max(atMs, this.sources.lastMsOf(runtime));
    if (lateMs > REPORTED_WITHIN_MS)
      this.violations.push(`${worker} reported ${lateMs.toFixed(1)} ms late that it is ready for prospect ${number}`);
  }
}
