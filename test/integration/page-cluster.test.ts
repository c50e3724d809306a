import assert from 'node:assert/strict';
import type { Page } from 'playwright-core';
import type { ClusterData } from '../../shared/wire/cluster-events.js';
import { sampleManyWorkers } from '../dashboard/sample-cluster.js';
import { axeFaults } from './harness/axe.js';
import type { TestBrowser } from './harness/browser.js';
import { SampleSite, startBrowserOrSkip } from './harness/sample-site.js';
import { waitUntil } from './harness/wait-until.js';

const PHONE = { width: 390, height: 844 };
const DESK = { width: 1280, height: 800 };
/** DESK at 200 %: half as many pixels of the page. */
const ZOOMED = { width: 640, height: 400 };
const VIEWS = ['cluster', 'token', 'time', 'machines'];
const WORKERS = 16;
const FIT_LIMIT_MS = 20_000;
/** 16 workers as cards are about 10,000 pixels high on a phone. */
const MOST_PIXELS = 3000;

describe('the cluster on the page in a browser, with invented data,', function () {
  this.timeout(60_000);
  let site: SampleSite;
  let browser: TestBrowser;
  let page: Page;
  let isSilent = false;
  let changes: Partial<ClusterData> = {};

  /** `port`: 0: any free one. */
  async function listen(port: number): Promise<void> {
    site = await SampleSite.start({ changes: () => changes, isSilent: () => isSilent }, port);
  }

  before(async function () {
    browser = await startBrowserOrSkip(this, { viewport: DESK });
  });

  after(() => browser?.close());

  beforeEach(async () => {
    isSilent = false;
    changes = sampleManyWorkers(WORKERS);
    await listen(0);
  });

  afterEach(async () => {
    await page.close();
    site.close();
    browser.assertNothingWrong([/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET/]);
  });

  async function open(view = 'cluster', viewport = DESK): Promise<void> {
    page = await browser.open(`${site.url}/#${view}`);
    await page.setViewportSize(viewport);
    await page.waitForSelector(`.view-${view} h1, .view-${view} h2, .view-${view} .card`);
  }

  const rows = (): Promise<string[]> =>
    page.evaluate<string[]>("[...document.querySelectorAll('.node-row')].map((row) => row.dataset.node)");
  const isTitled = (tab: Page, title: string): Promise<void> =>
    waitUntil(`the title is ${title}`, async () => (await tab.title()) === title);

  it('shows sixteen workers as rows, as people count, on three screens of a phone', async () => {
    await open('cluster', PHONE);
    const expected = Array.from({ length: WORKERS }, (_, index) => `orin-${index + 1}`);
    assert.deepEqual(await rows(), expected);
    const height = await page.evaluate<number>('document.documentElement.scrollHeight');
    assert.ok(height < MOST_PIXELS, `${height} pixels are high`);
    changes = sampleManyWorkers(8);
    await page.locator('li.card[data-node="orin-8"]').waitFor();
    assert.equal(await page.locator('.node-row, #node-filter').count(), 0);
  });

  it("opens a worker's details by the keyboard alone, and keeps them open while data comes", async () => {
    await open();
    await page.getByLabel('Find nodes').focus();
    const focused = (): Promise<string> =>
      page.evaluate<string>("document.activeElement.querySelector('.row-name')?.textContent ?? ''");
    for (let presses = 0; presses < 20 && (await focused()) !== 'orin-2'; presses++) await page.keyboard.press('Tab');
    const row = page.getByRole('button', { name: /^orin-2 / });
    assert.equal(await row.getAttribute('aria-expanded'), 'false');
    await page.keyboard.press('Enter');
    assert.equal(await row.getAttribute('aria-expanded'), 'true');
    const details = page.locator(`#${await row.getAttribute('aria-controls')}`);
    assert.match((await details.textContent()) ?? '', /Orin NX.*Slots in use3 of 8.*192\.168\.1\.22:7602up 3 h/s);
    changes = { ...changes, name: 'another' };
    await page.locator('.brand-cluster', { hasText: 'another' }).waitFor();
    assert.ok(await details.isVisible());
    assert.equal(await focused(), 'orin-2');
    await page.keyboard.press(' ');
    assert.equal(await details.count(), 0);
  });

  it('finds nodes by what is typed, says how many, and shows all again', async () => {
    await open();
    const field = page.getByLabel('Find nodes');
    await field.fill('group 1');
    assert.deepEqual(await rows(), ['orin-3', 'orin-4']);
    assert.equal(await page.locator('.node-filter [role="status"]').textContent(), '2 of 18 nodes');
    await field.fill('lost');
    assert.deepEqual(await rows(), ['orin-3']);
    await field.fill('nobody');
    await page.getByText('None of 18 nodes').waitFor();
    await field.press('Escape');
    assert.equal((await rows()).length, WORKERS);
  });

  it('counts the problems in the title, in each tab of its own', async () => {
    await open();
    await isTitled(page, '(1) Cluster home · odmoe');
    const second = await browser.open(`${site.url}/#time`);
    await isTitled(second, '(1) Over time · home · odmoe');
    changes = { ...changes, problems: [] };
    await isTitled(second, 'Over time · home · odmoe');
    await isTitled(page, 'Cluster home · odmoe');
    await page.getByLabel('Find nodes').fill('orin-1');
    assert.equal(await second.evaluate('location.hash'), '#time');
    await second.close();
  });

  const assertGrey = async (): Promise<void> => {
    await page.getByText(/^Main is silent since \d\d:\d\d:\d\d\./).waitFor();
    await isTitled(page, '(silent) Cluster home · odmoe');
    assert.equal(await page.locator('.state-up').count(), 0);
    const states = new Set(await page.locator('.state').allTextContents());
    assert.deepEqual([...states].sort(), ['was lost', 'was up']);
    assert.match(
      await page.evaluate<string>("getComputedStyle(document.querySelector('#view')).filter"),
      /grayscale\(1\)/,
    );
    const colours = await page.evaluate<string[]>(
      "[...document.querySelectorAll('.state, .state-dot')].map((part) => getComputedStyle(part).color)",
    );
    assert.equal(new Set(colours).size, 1);
  };

  const assertBack = async (): Promise<void> => {
    await page.locator('.state-up').first().waitFor();
    await isTitled(page, '(1) Cluster home · odmoe');
    assert.equal(await page.locator('.connection-note, .view-silent').count(), 0);
  };

  it('is grey where main stands still though its connection stands, and comes back by itself', async () => {
    await open();
    await page.locator('.state-up').first().waitFor();
    isSilent = true;
    await assertGrey();
    assert.deepEqual(await axeFaults(page), []);
    isSilent = false;
    await assertBack();
  });

  it('is grey where main has ended, and comes back with another one', async () => {
    await open();
    await page.locator('.state-up').first().waitFor();
    site.close();
    await assertGrey();
    await page.getByRole('link', { name: 'Chat' }).click();
    assert.equal(await page.evaluate<string>("getComputedStyle(document.querySelector('#view')).filter"), 'none');
    await page.getByRole('link', { name: 'Cluster' }).click();
    await listen(site.port);
    await assertBack();
  });

  it('has a manifest and icons with which Chromium can install it', async () => {
    await open();
    const devTools = await page.context().newCDPSession(page);
    const { url, errors, data } = (await devTools.send('Page.getAppManifest')) as {
      url: string;
      errors: unknown[];
      data?: string;
    };
    assert.deepEqual([url, errors], [`${site.url}/assets/manifest.webmanifest`, []]);
    assert.equal((JSON.parse(data ?? '') as { name: string }).name, 'odmoe');
    const { installabilityErrors } = await devTools.send('Page.getInstallabilityErrors');
    assert.deepEqual(
      installabilityErrors.map(({ errorId }) => errorId).filter((id) => id !== 'in-incognito'),
      [],
    );
  });

  for (const view of VIEWS) {
    it(`${view}: axe finds nothing, in light and dark, with rows open`, async () => {
      await open(view);
      if (view === 'cluster') await page.getByRole('button', { name: /^orin-1 / }).click();
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        assert.deepEqual(await axeFaults(page), [], colorScheme);
      }
      await page.emulateMedia({ colorScheme: 'light' });
    });

    it(`${view}: can be read at 200 %, and with letters twice as large, without scrolling sideways`, async () => {
      await open(view, ZOOMED);
      if (view === 'cluster') await page.getByRole('button', { name: /^orin-1 / }).click();
      // Charts take their new width a moment after the window has.
      const fits = (pixels: number): Promise<void> =>
        waitUntil(
          `the view is at most ${pixels} pixels wide`,
          async () => (await page.evaluate<number>('document.documentElement.scrollWidth')) <= pixels,
          FIT_LIMIT_MS,
        );
      await fits(ZOOMED.width);
      await page.setViewportSize(DESK);
      await page.evaluate("document.documentElement.style.fontSize = '187.5%'");
      await fits(DESK.width);
      const cut = await page.evaluate<string[]>(
        "[...document.querySelectorAll('.tab, .button, .row-name')].filter((part) => part.scrollWidth > part.clientWidth + 1).map((part) => part.textContent)",
      );
      assert.deepEqual(cut, []);
    });
  }

  it('has a part of each view that the keyboard reaches, behind a link that skips the tabs', async () => {
    await open();
    await page.evaluate('document.activeElement.blur()');
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate<string>('document.activeElement.className'), 'skip-link');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate<string>('document.activeElement.id'), 'view');
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate<string>('document.activeElement.id'), 'node-filter');
    await page.keyboard.press('Shift+Tab');
    await page.getByRole('link', { name: 'Over time' }).focus();
    await page.keyboard.press('Enter');
    await page.locator('.view-time').waitFor();
  });
});
