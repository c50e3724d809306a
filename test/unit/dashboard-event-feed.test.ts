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

  newest(): SampleSource {
    return this.sources.at(-1) ?? assert.fail('the page does not listen');
  }

  /** Forgets what was asked, and all timers. */
  stop(): void {
    this.timers.clear();
    this.asked.length = 0;
  }

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
  onerror: () => void = () => undefined;
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

interface Feed {
  startFeed: () => void;
  noticeSilence: () => void;
}

async function feed(): Promise<Feed> {
  const path = pathToFileURL(join(packageRoot(), 'dist', 'dashboard', 'feed', 'event-feed.js'));
  return (await import(path.href)) as Feed;
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

  afterEach(() => {
    parts.stop();
  });

  it('considers main silent after five seconds without an event though the connection stands, and listens anew', async () => {
    const { startFeed } = await feed();
    startFeed();
    const source = parts.newest();
    source.onopen();
    await parts.pass(4000);
    source.tellCluster();
    await parts.pass(4000);
    assert.equal(source.isClosed, false);
    await parts.pass(1000);
    assert.equal(source.isClosed, true);
    assert.equal(parts.sources.length, 1);
    await parts.pass(500);
    assert.equal(parts.sources.length, 2);
    assert.deepEqual(parts.asked, [], 'nobody asks main for a reason: it says nothing');
  });

  it('asks main for the reason where it refuses, and listens anew where that is no key', async () => {
    const { startFeed } = await feed();
    startFeed();
    const source = parts.newest();
    source.onerror();
    assert.deepEqual([source.isClosed, parts.asked], [true, ['/cluster/events']]);
    await parts.pass(0);
    await parts.pass(5000);
    assert.notEqual(parts.newest(), source);
  });

  it('listens anew at once where the page is looked at after a sleep, in which timers stood still', async () => {
    const { startFeed, noticeSilence } = await feed();
    startFeed();
    const source = parts.newest();
    source.tellCluster();
    noticeSilence();
    assert.equal(source.isClosed, false);
    const { now } = Date;
    Date.now = () => now() + 60_000;
    try {
      noticeSilence();
    } finally {
      Date.now = now;
    }
    assert.equal(source.isClosed, true);
    assert.notEqual(parts.newest(), source);
  });
});
