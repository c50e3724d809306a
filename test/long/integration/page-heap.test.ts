import assert from 'node:assert/strict';
import { REMEMBERED_FIGURES_S, type ClusterEvent } from '../../../shared/wire/cluster-events.js';
import { PASSES_HELD } from '../../../dashboard/feed/dashboard-state.js';
import { samplePass } from '../../dashboard/sample-passes.js';
import { findBrowser } from '../../integration/harness/browser.js';
import { SampleSite } from '../../integration/harness/sample-site.js';
import { waitUntil } from '../../integration/harness/wait-until.js';
import { WatchedPage, type PageSize } from '../../integration/harness/watched-page.js';

/** The invented cluster lives this many times as fast. */
const SPEED = 50;
const PASSES_PER_S = 2;
const VIEWS = 5;
/** Seconds of the cluster in each view of a round. */
const VIEW_S = 24;
/** Together ten minutes. */
const ROUNDS = 5;
const WARM_UP_S = REMEMBERED_FIGURES_S + PASSES_HELD / PASSES_PER_S;
/** Seconds that the page may be behind. On a busy machine more would wait in the browser, and count as memory of the page. */
const MOST_BEHIND_S = 10;
const MOST_GROWTH: PageSize = { heapBytes: 2 ** 20, nodes: 400, listeners: 40 };

describe('the memory of the page', function () {
  this.timeout(1_800_000);
  const path = findBrowser();
  if (path === undefined) {
    it.skip('no Chromium is in the PATH, and CHROME_PATH names none');
    return;
  }
  let site: SampleSite;
  let page: WatchedPage;
  let toldS = 0;
  let seenS = 0;

  before(async () => {
    site = await SampleSite.start({
      // The title of the page tells how far it is.
      changes: () => ({ name: `after ${toldS} s`, problems: [] }),
      secondMs: 1000 / SPEED,
      mayGoOn: () => toldS - seenS < MOST_BEHIND_S,
      more: (secondsOn) => {
        toldS = secondsOn;
        return passesOf(secondsOn);
      },
    });
    page = await WatchedPage.open(path, site.url);
  });

  after(async () => {
    await page?.close();
    site?.close();
  });

  function passesOf(secondsOn: number): ClusterEvent[] {
    return Array.from({ length: PASSES_PER_S }, (_, index): ClusterEvent => {
      const number = 1000 + secondsOn * PASSES_PER_S + index;
      return { type: 'pass', pass: samplePass({ number, layers: 24, workers: 8, expertsPerLayer: 4 }) };
    });
  }

  /** The second of the cluster that the page shows. */
  async function shownS(): Promise<number> {
    seenS = Number(/after (\d+) s/.exec(await page.title())?.[1] ?? 0);
    return seenS;
  }

  async function letPass(seconds: number): Promise<void> {
    const endS = (await shownS()) + seconds;
    await waitUntil(`the page shows second ${endS}`, async () => (await shownS()) >= endS, 900_000);
  }

  /** What the page holds after it has shown each view for some time. */
  async function round(): Promise<PageSize> {
    for (let view = 0; view < VIEWS; view++) {
      await page.turn();
      await letPass(VIEW_S);
    }
    return page.size();
  }

  it('stays the same while it shows ten minutes of a busy cluster, view after view', async () => {
    await letPass(WARM_UP_S);
    const first = await round();
    const sizes: PageSize[] = [];
    for (let index = 0; index < ROUNDS; index++) sizes.push(await round());
    const words = [first, ...sizes].map(({ heapBytes, nodes, listeners }) => `${heapBytes} B, ${nodes}, ${listeners}`);
    for (const what of ['heapBytes', 'nodes', 'listeners'] as const) {
      // The least counts: a view may hold more at times.
      const least = Math.min(...sizes.slice(-2).map((size) => size[what]));
      const growth = least - first[what];
      assert.ok(growth <= MOST_GROWTH[what], `${what} grew by ${growth}: ${words.join('; ')}`);
    }
    page.assertNothingWrong();
  });
});
