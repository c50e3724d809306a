import type { CDPSession, Page } from 'playwright-core';
import { TestBrowser } from './browser.js';

/** The views of the page, in turn. */
const VIEWS = ['cluster', 'token', 'time', 'chat', 'machines'];

/** The longest that a busy page may take to show another view. */
const TURN_LIMIT_MS = 120_000;

export interface PageSize {
  /** JavaScript objects that are in use. */
  heapBytes: number;
  /** Nodes of documents, those included that only a script still holds. */
  nodes: number;
  listeners: number;
}

/** The page in Chromium, which is looked at for long and whose memory is measured. */
export class WatchedPage {
  private turns = 0;

  private constructor(
    private readonly browser: TestBrowser,
    private readonly page: Page,
    private readonly devTools: CDPSession,
  ) {}

  /** `path`: that of Chromium; `url`: of the page, without a slash at its end. */
  static async open(path: string, url: string): Promise<WatchedPage> {
    const browser = await TestBrowser.start(path);
    const page = await browser.open(`${url}/`);
    return new WatchedPage(browser, page, await page.context().newCDPSession(page));
  }

  /** Shows the next of the views, and waits until it is there. A click by mouse would wait for frames, of which a busy page on a busy machine draws few. */
  async turn(): Promise<void> {
    this.turns += 1;
    const view = VIEWS[this.turns % VIEWS.length] ?? '';
    await this.page.locator(`.tab[href="#${view}"]`).dispatchEvent('click', undefined, { timeout: TURN_LIMIT_MS });
    await this.page.locator(`.view-${view} :is(h1, h2)`).first().waitFor({ timeout: TURN_LIMIT_MS });
  }

  /** What is left after garbage was collected. */
  async size(): Promise<PageSize> {
    await this.devTools.send('HeapProfiler.collectGarbage');
    const { usedSize } = await this.devTools.send('Runtime.getHeapUsage');
    const { nodes, jsEventListeners } = await this.devTools.send('Memory.getDOMCounters');
    return { heapBytes: usedSize, nodes, listeners: jsEventListeners };
  }

  title(): Promise<string> {
    return this.page.title();
  }

  assertNothingWrong(): void {
    this.browser.assertNothingWrong();
  }

  async close(): Promise<void> {
    // A browser that has crashed is closed already; what was asked of it before has thrown.
    await this.browser.close().catch(() => undefined);
  }
}
