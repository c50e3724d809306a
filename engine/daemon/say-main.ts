import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { RunningNode } from './running-node.js';

/** Interval at which it is looked whether main uses the daemon. */
const LOOK_INTERVAL_MS = 1000;
/** A main that is away for a shorter time is not spoken of: it comes at once when the daemon starts, and back at once after a cut. */
export const PATIENCE_MS = 5000;

/** What a daemon tells its user of main, at most one line each PATIENCE_MS. */
export class MainWords {
  private awaySinceMs: number | null;
  private isTold = false;
  private hadMain = false;

  constructor(
    private readonly waiting: string,
    nowMs: number,
  ) {
    this.awaySinceMs = nowMs;
  }

  /** The line to say now; null: none. */
  look(hasMain: boolean, nowMs: number): string | null {
    if (hasMain) return this.served();
    this.awaySinceMs ??= nowMs;
    if (this.isTold || nowMs - this.awaySinceMs < PATIENCE_MS) return null;
    this.isTold = true;
    return this.hadMain ? `main is gone: ${this.waiting}` : `no main uses it yet: ${this.waiting}`;
  }

  private served(): string | null {
    const wasTold = this.isTold;
    [this.awaySinceMs, this.isTold, this.hadMain] = [null, false, true];
    return wasTold ? 'main uses it' : null;
  }
}

/** Says whether main uses a worker or a shadow, from now on. */
export function sayMain(
  node: RunningNode,
  settings: NodeSettings,
  runtime: Pick<Runtime, 'nowMs' | 'every'>,
  say: (text: string) => void,
): void {
  if (node.hasMain === undefined) return;
  const { cluster = settings.cluster } = node;
  const words = new MainWords(waitingWords({ ...settings, cluster }), runtime.nowMs());
  const look = (): void => {
    const line = words.look(node.hasMain?.() === true, runtime.nowMs());
    if (line !== null) say(line);
  };
  runtime.every(LOOK_INTERVAL_MS, look).unref();
}

/** How main finds this daemon. Pure. */
export function waitingWords({ cluster, mainAddress, discovery }: NodeSettings): string {
  const main = `it waits for main of "${cluster}"`;
  if (mainAddress !== null) return `${main} at ${mainAddress}`;
  if (discovery.provider === 'static') return `${main}, whose configuration must list it`;
  const way = discovery.provider === 'mdns' ? 'by mDNS' : `by the name ${discovery.name ?? ''}`;
  return `${main}, which finds it ${way}; or give main's address by --main HOST:PORT`;
}
