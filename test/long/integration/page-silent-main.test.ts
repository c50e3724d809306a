import assert from 'node:assert/strict';
import { findBrowser, TestBrowser } from '../../integration/harness/browser.js';
import { endCluster, ProcessCluster } from '../../integration/harness/process-cluster.js';

/** Daemons and the page notice what happens when they can: nothing is timed here. */
const PATIENCE_MS = 90_000;
const UP = '[data-node="main"] .state-up';

describe('the page in a browser, with a main of its own that is stopped:', function () {
  this.timeout(240_000);
  const path = findBrowser();
  if (path === undefined) {
    it.skip('no Chromium is in the PATH, and CHROME_PATH names none');
    return;
  }
  let browser: TestBrowser;
  let cluster: ProcessCluster | null = null;

  before(async () => {
    browser = await TestBrowser.start(path);
  });

  after(() => browser.close());

  afterEach(async function () {
    cluster?.daemon('main').signal('SIGCONT');
    await endCluster(this, cluster);
  });

  it('is grey while the process stands still, and shows the cluster again when it goes on', async () => {
    cluster = await ProcessCluster.start('demo', 1, false, ['--http', '127.0.0.1:0']);
    const page = await browser.open(`http://${(await cluster.status()).httpAddress}/`);
    page.setDefaultTimeout(PATIENCE_MS);
    await page.locator(UP).waitFor();
    const main = cluster.daemon('main');
    for (let times = 0; times < 2; times++) {
      main.signal('SIGSTOP');
      await page.getByText(/^Main is silent since \d\d:\d\d:\d\d\./).waitFor();
      assert.equal(await page.locator('.state-up').count(), 0);
      assert.match(await page.title(), /^\(silent\) Cluster /);
      main.signal('SIGCONT');
      await page.locator(UP).waitFor();
      assert.equal(await page.locator('.connection-note').count(), 0);
    }
    browser.assertNothingWrong();
  });
});
