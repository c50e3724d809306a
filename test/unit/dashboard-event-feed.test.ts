import assert from 'node:assert/strict';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { sampleCluster } from '../dashboard/sample-cluster.js';

/** Stand-ins for the parts of a browser that the feed uses. */
class BrowserParts {
  readonly sources: SampleSource[] = [];
  readonly asked: string[] = [];
  private readonly timers = new Map<number, { callback: () => void; dueMs: number }>();
  private nowMs = 0;
  private nextTimer = 1;

  readonly window = {
    setTimeout: (callback: () => void, ms: number): number => {
      this.timers.set(this.nextTimer, { callback, dueMs: this.nowMs + ms });
      return this.nextTimer++;
    },
    clearTimeout: (timer?: number): void => void this.timers.delete(timer ?? 0),
  };

  readonly fetch = (url: string): Promise<{ status: number }> => {
    this.asked.push(url);
    return Promise.resolve({ status: 200 });
  };

  /** Lets the time pass and requests be answered. */
  async pass(ms: number): Promise<void> {
    this.nowMs += ms;
    for (const [timer, { callback, dueMs }] of [...this.timers]) {
      if (dueMs > this.nowMs || !this.timers.delete(timer)) continue;
      callback();
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
}

class SampleSource {
  onopen: () => void = () => undefined;
  isClosed = false;
  private readonly listeners = new Map<string, (message: { data: string }) => void>();

  addEventListener(type: string, listener: (message: { data: string }) => void): void {
    this.listeners.set(type, listener);
  }

  close(): void {
    this.isClosed = true;
  }

  tellCluster(): void {
    this.listeners.get('cluster')?.({ data: JSON.stringify({ type: 'cluster', cluster: sampleCluster(0) }) });
  }
}

describe('the event feed of the page', () => {
  const parts = new BrowserParts();
  const { fetch } = globalThis;

  before(() => {
    class EventSource extends SampleSource {
      constructor() {
        super();
        parts.sources.push(this);
      }
    }
    Object.assign(globalThis, { window: parts.window, fetch: parts.fetch, EventSource });
  });

  after(() => {
    Object.assign(globalThis, { fetch });
    for (const name of ['window', 'EventSource']) Reflect.deleteProperty(globalThis, name);
  });

  it('considers main lost after ten silent seconds though the connection stands, and asks again', async () => {
    const path = pathToFileURL(join(packageRoot(), 'dist', 'dashboard', 'feed', 'event-feed.js'));
    const { startFeed } = (await import(path.href)) as { startFeed: () => void };
    startFeed();
    const [source] = parts.sources;
    assert.ok(source !== undefined);
    source.onopen();
    await parts.pass(9000);
    source.tellCluster();
    await parts.pass(9000);
    assert.deepEqual([source.isClosed, parts.asked], [false, []]);
    await parts.pass(1000);
    assert.deepEqual([source.isClosed, parts.asked], [true, ['/cluster/events']]);
    await parts.pass(500);
    assert.equal(parts.sources.length, 2);
  });
});
