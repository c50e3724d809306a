import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import type { Page } from 'playwright-core';
import { SAMPLE_ANSWER } from '../dashboard/sample-chat.js';
import { samplePasses } from '../dashboard/sample-passes.js';
import type { TestBrowser } from './harness/browser.js';
import { SampleSite, startBrowserOrSkip } from './harness/sample-site.js';

const PHONE = { width: 390, height: 844 };
const DESK = { width: 1440, height: 900 };
const VIEWS = ['cluster', 'token', 'time', 'chat', 'machines'];

describe('the page in a browser, with invented cluster data,', function () {
  this.timeout(60_000);
  let site: SampleSite;
  let browser: TestBrowser;
  let page: Page;
  /** The second half of the model's answers waits for it. */
  let halfway = Promise.resolve();

  before(async function () {
    browser = await startBrowserOrSkip(this, { viewport: DESK, permissions: ['clipboard-read', 'clipboard-write'] });
    site = await SampleSite.start({
      halfway: () => halfway,
    });
    page = await browser.open(`${site.url}/`);
  });

  after(async () => {
    await browser?.close();
    site?.close();
  });

  afterEach(() => browser.assertNothingWrong());

  async function show(view: string): Promise<void> {
    await page.goto(`${site.url}/#${view}`);
    await page.waitForSelector(`.view-${view} h1, .view-${view} h2, .view-${view} .card`);
  }

  function groundColour(): Promise<string> {
    return page.evaluate<string>('getComputedStyle(document.documentElement).backgroundColor');
  }

  for (const view of VIEWS) {
    it(`${view}: has no sideways scroll on a phone, and follows the dark scheme`, async () => {
      await page.setViewportSize(PHONE);
      await page.emulateMedia({ colorScheme: 'light' });
      await show(view);
      const width = await page.evaluate<number>('document.documentElement.scrollWidth');
      assert.ok(width <= PHONE.width, `${width} pixels are wide`);
      const light = await groundColour();
      await page.emulateMedia({ colorScheme: 'dark' });
      assert.notEqual(await groundColour(), light);
      await page.emulateMedia({ colorScheme: 'light' });
      await page.setViewportSize(DESK);
    });
  }

  it('in the token view: pauses, steps, compares and zooms', async () => {
    await show('token');
    const numbers = samplePasses().map(({ number }) => number);
    const last = numbers.at(-1) ?? 0;
    const heading = page.locator('.token-view h1');
    assert.match((await heading.textContent()) ?? '', new RegExp(`^Pass ${last}:`));
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('button', { name: 'The pass before' }).click();
    assert.match((await heading.textContent()) ?? '', new RegExp(`^Pass ${last - 1}:`));
    assert.equal(await page.locator('.timing-svg').count(), 1);
    await page.locator('.pass-select select').nth(1).selectOption(String(numbers[0]));
    assert.equal(await page.locator('.timing-svg').count(), 2);
    assert.ok((await page.locator('.difference-slower, .difference-faster').count()) > 0);
    const before = Number(await page.locator('.timing-svg').first().getAttribute('width'));
    await page.getByRole('button', { name: 'Wider' }).click();
    assert.ok(Number(await page.locator('.timing-svg').first().getAttribute('width')) > before * 1.4);
    await page.getByRole('button', { name: 'Live' }).click();
    assert.match((await heading.textContent()) ?? '', new RegExp(`^Pass ${last}:`));
  });

  it('in the token view: explains a bar under the pointer, and the next one by a key', async () => {
    await show('token');
    const timingStatus = page.locator('.timing-status');
    await page.locator('rect[data-bar]').first().hover();
    const first = (await timingStatus.textContent()) ?? '';
    assert.match(first, /^layer 0: attention and router, [\d.]+ ms$/);
    await page.locator('.timing-svg').focus();
    await page.keyboard.press('ArrowRight');
    await timingStatus.filter({ hasText: 'layer 0: main waits for 4 experts' }).waitFor();
  });

  it('in the token view: saves an SVG that is valid XML, and a trace with events', async () => {
    await show('token');
    const saved = async (button: string): Promise<string> => {
      const download = page.waitForEvent('download');
      await page.getByRole('button', { name: button }).click();
      return readFileSync(await (await download).path(), 'utf8');
    };
    const svg = await saved('Save SVG');
    const parsed = `new DOMParser().parseFromString(${JSON.stringify(svg)}, 'image/svg+xml')`;
    const wrong = await page.evaluate<string | null>(`${parsed}.querySelector('parsererror')?.textContent ?? null`);
    assert.equal(wrong, null);
    const trace = JSON.parse(await saved('Save Chrome trace')) as { traceEvents: { ph: string }[] };
    assert.ok(trace.traceEvents.filter(({ ph }) => ph === 'X').length > 100);
  });

  it("in the chat: streams an answer, whose markup stays text, and shows tokens' alternatives", async () => {
    await show('chat');
    await page.getByLabel('Your question').fill('A story?');
    await page.keyboard.press('Enter');
    const answer = page.locator('.turn-answer[data-state="done"]');
    await answer.waitFor();
    // Paragraphs have no line ends between them.
    assert.equal(await answer.locator('.token-text').textContent(), SAMPLE_ANSWER.replaceAll('\n\n', ''));
    assert.equal(await page.locator('main img').count(), 0);
    assert.notEqual(await page.title(), '1');
    await answer.locator('[data-token="6"]').hover();
    assert.match((await page.locator('.alternatives').textContent()) ?? '', /wrote.*4\.0 %.*48 %/);
    assert.equal(await page.locator('.alternative-taken').count(), 1);
    assert.equal(await answer.locator('.reasoning').getAttribute('open'), null);
    assert.match((await answer.locator('.answer-foot').textContent()) ?? '', /21 tokens.*180 of them reused.*seed \d+/);
  });

  it('in the chat: copies the request as a command, and asks again with an edited question', async () => {
    await page.getByText('Details').click();
    await page.getByRole('button', { name: 'Copy as curl' }).click();
    await page.getByRole('button', { name: 'Copied' }).waitFor();
    const command = await page.evaluate<string>('navigator.clipboard.readText()');
    assert.match(command, /^curl -N 'http:\/\/127\.0\.0\.1:\d+\/v1\/chat\/completions'/);
    assert.match(command, /"content":"A story\?"/);
    await page.getByRole('button', { name: 'Edit' }).click();
    await page.getByLabel('The question').fill("Another's story?");
    await page.getByRole('button', { name: 'Ask from here' }).click();
    await page.locator('.turn-answer[data-state="done"]').waitFor();
    assert.deepEqual(await page.locator('.turn-question .turn-text').allTextContents(), ["Another's story?"]);
  });

  it('in the chat: stops on request, and continues while another view is shown', async () => {
    const ask = async (): Promise<void> => {
      await page.getByLabel('Your question').fill('Once more?');
      await page.keyboard.press('Enter');
      await page.locator('.turn-answer[data-state="streaming"]').waitFor();
    };
    halfway = new Promise(() => undefined);
    await ask();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.locator('.turn-answer[data-state="stopped"]').waitFor();
    let goOn = (): void => undefined;
    halfway = new Promise((resolve) => (goOn = resolve));
    await ask();
    await page.getByRole('link', { name: 'Cluster' }).click();
    goOn();
    await page.getByRole('link', { name: 'Chat' }).click();
    await page.locator('.turn-answer[data-state="done"]').nth(1).waitFor();
  });
});
