import assert from 'node:assert/strict';
import type { Page } from 'playwright-core';
import type { GenerateRequest } from '../../../shared/wire/messages.js';
import { answeringClusters } from '../../integration/harness/answering-clusters.js';
import { findBrowser, TestBrowser } from '../../integration/harness/browser.js';
import { waitUntil } from '../../integration/harness/wait-until.js';

const KEY = 'the-key-of-the-test';
const QUESTION = 'Tell me a story about a fox.';
/** So long that a worker can be killed in its midst. */
const ANSWER_TOKENS = 220;
/** Daemons notice what happens when they can: nothing is timed here. */
const PATIENCE_MS = 45_000;

/** The same question to the single-process engine. */
const REQUEST: GenerateRequest = {
  text: '',
  messages: [{ role: 'user', content: QUESTION }],
  promptTokenIds: [],
  raw: false,
  stop: [],
  maxTokens: ANSWER_TOKENS,
  ignoreEos: false,
  logprobs: 0,
  sampling: { temperature: 0, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1 },
};

describe('the page in a browser, with a cluster of real daemons:', function () {
  this.timeout(120_000);
  const path = findBrowser();
  if (path === undefined) {
    it.skip('no Chromium is in the PATH, and CHROME_PATH names none');
    return;
  }
  const clusters = answeringClusters('demo', REQUEST);
  let browser: TestBrowser;

  before(async () => {
    browser = await TestBrowser.start(path);
  });

  after(() => browser.close());

  async function logIn(page: Page): Promise<void> {
    await page.getByLabel('API key').fill('not-the-key-at-all');
    await page.getByRole('button', { name: 'Open' }).click();
    await page.getByText('Main does not know this key.').waitFor();
    await page.getByLabel('API key').fill(KEY);
    await page.getByRole('button', { name: 'Open' }).click();
    await page.locator('[data-node="main"][data-state="up"]').waitFor();
    const cookies = await browser.cookies();
    assert.deepEqual(
      cookies.map(({ httpOnly, sameSite }) => [httpOnly, sameSite]),
      [[true, 'Strict']],
    );
    assert.equal(await page.evaluate<string>('document.cookie'), '');
    assert.ok(!cookies.some(({ value }) => value.includes(KEY)), 'the key stays with main');
  }

  async function ask(page: Page): Promise<void> {
    await page.getByRole('link', { name: 'Chat' }).click();
    await page.getByText('Settings').click();
    await page.getByLabel('Temperature').fill('0');
    await page.getByLabel('Most tokens').fill(String(ANSWER_TOKENS));
    await page.getByLabel('Your question').fill(QUESTION);
    await page.keyboard.press('Enter');
  }

  it("it logs in with a key, shows a streamed answer, a worker's death, and the time of each step", async () => {
    const cluster = await clusters.start('demo', 2, false, ['--http', '127.0.0.1:0'], {
      flags: () => ['--device', 'cpu'],
      environment: (id): Record<string, string> => (id === 'main' ? { ODMOE_API_KEYS: KEY } : {}),
    });
    const page = await browser.open(`http://${(await cluster.status()).httpAddress}/`);
    page.setDefaultTimeout(PATIENCE_MS);
    await logIn(page);
    await ask(page);
    // By main's word: a busy machine may draw the answer only when it has ended.
    await waitUntil('the answer is under way', async () => (await cluster.status()).activeSequences === 1);
    cluster.daemon('worker-1').signal('SIGKILL');
    await page.getByRole('link', { name: 'Cluster' }).click();
    const card = page.locator('[data-node="worker-1"][data-state="lost"]');
    await card.waitFor();
    const colourOf = (selector: string): Promise<string> =>
      page.evaluate<string>(`getComputedStyle(document.querySelector('${selector} .state')).color`);
    const [red, green, blue] = (await colourOf('[data-node="worker-1"]')).match(/\d+/g)?.map(Number) ?? [];
    assert.ok((red ?? 0) > 1.5 * Math.max(green ?? 255, blue ?? 255), `${red}, ${green}, ${blue} is no red`);
    await page.getByRole('link', { name: 'Chat' }).click();
    await page.locator('.turn-answer[data-state="done"]').waitFor();
    const answer = page.locator('.turn-answer');
    const expected = clusters.expected.tokens.map(({ text }) => text).join('');
    const letters = (text: string | null): string => (text ?? '').replaceAll(/\s/g, '');
    assert.equal(letters(await answer.locator('.token-text').textContent()), letters(expected));
    await page.getByRole('link', { name: 'A token' }).click();
    await page.locator('.timing-svg rect[data-bar]').first().waitFor();
    assert.match(
      (await page.locator('.token-view h1').textContent()) ?? '',
      /^Pass \d+: .*sequence …?\d+, positions? \d+/,
    );
    // Before the key was known, and with a wrong one, the browser itself tells of the refusal.
    browser.assertNothingWrong([/status of 401/]);
  });
});
