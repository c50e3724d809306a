import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { formatConversation, parseConversation } from '../../cli/chat/conversation-file.js';
import { allMessages, terminalConversation } from '../../cli/chat/conversation.js';
import { SAMPLE_ANSWER } from '../dashboard/sample-chat.js';
import { axeFaults } from './harness/axe.js';
import { findBrowser, TestBrowser } from './harness/browser.js';
import { SampleSite } from './harness/sample-site.js';

/** A busy machine is slow: nothing is timed here. */
const PATIENCE_MS = 60_000;
const KEY = 'the-key-of-the-test';
const DONE = '.turn-answer[data-state="done"]';
const STREAMING = '.turn-answer[data-state="streaming"]';
const CUT = '.turn-answer[data-state="cut"]';
const QUESTIONS = '.turn-question .turn-text';

describe('the conversations of the page in a browser', function () {
  this.timeout(180_000);
  const path = findBrowser();
  if (path === undefined) {
    it.skip('no Chromium is in the PATH, and CHROME_PATH names none');
    return;
  }
  let folder = '';
  let site: SampleSite;
  let browser: TestBrowser;
  let page: Page;
  let url = '';
  /** The second half of the model's answers waits for it. */
  let halfway = Promise.resolve();
  let goOn = (): void => undefined;

  async function start(key: string | null): Promise<void> {
    site = await SampleSite.start({ key, halfway: () => halfway });
    url = `${site.url}/#chat`;
    browser = await TestBrowser.start(path ?? '');
    page = await browser.open(url);
    page.setDefaultTimeout(PATIENCE_MS);
  }

  function hold(): void {
    halfway = new Promise((resolve) => (goOn = resolve));
  }

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'odmoe-page-'));
    halfway = Promise.resolve();
  });

  afterEach(async () => {
    goOn();
    await browser.close();
    site.close();
    rmSync(folder, { recursive: true });
  });

  async function ask(question: string, tab = page, state = DONE): Promise<void> {
    const before = await tab.locator(QUESTIONS).count();
    await tab.getByLabel('Your question').fill(question);
    await tab.keyboard.press('Enter');
    await tab.locator(QUESTIONS).nth(before).waitFor();
    await tab.locator('.turn-answer').nth(before).and(tab.locator(state)).waitFor();
  }

  /** Sends a question from each tab in the same instant, before one knows the other's. */
  async function askAtOnce(...asked: [tab: Page, text: string][]): Promise<void> {
    for (const [tab, text] of asked) await tab.getByLabel('Your question').fill(text);
    const atMs = Date.now() + 1000;
    const submit = `setTimeout(() => document.querySelector('.composer').requestSubmit(), ${atMs} - Date.now())`;
    await Promise.all(asked.map(([tab]) => tab.evaluate(submit)));
    await Promise.all(asked.map(([tab]) => tab.locator(STREAMING).first().waitFor()));
  }

  async function reload(): Promise<void> {
    await page.reload();
    await page.getByRole('heading', { name: 'Chat' }).waitFor();
  }

  function button(name: string, tab = page): Promise<void> {
    return tab.getByRole('button', { name }).first().click();
  }

  /** Opens the list, and waits until it has so many conversations. */
  async function list(count: number): Promise<void> {
    if ((await page.locator('#conversations').count()) === 0) await button('Conversations');
    await page
      .locator('.conversation-row')
      .nth(count - 1)
      .waitFor();
    await page.waitForFunction(`document.querySelectorAll('.conversation-row').length === ${count}`);
  }

  /** The text of the last such answer, without the alternatives of a token that the pointer is on. */
  async function textOf(answers: string): Promise<string> {
    return (await page.locator(answers).last().locator('[data-token]').allTextContents()).join('');
  }

  const titles = (): Promise<string[]> => page.locator('.conversation-title').allTextContents();
  const questions = (tab = page): Promise<string[]> => tab.locator(QUESTIONS).allTextContents();

  it('stay over a reload, and an answer that it cuts goes on from what had come', async () => {
    await start(null);
    await ask('A story?');
    hold();
    await ask('Another?', page, STREAMING);
    await page.locator('.turn-answer').last().locator('[data-token="9"]').waitFor();
    // The pointer leaves the tokens, whose alternatives would stand in the text.
    await page.mouse.move(0, 0);
    const came = await textOf('.turn-answer');
    await reload();
    await page.locator(CUT).waitFor();
    assert.deepEqual(await questions(), ['A story?', 'Another?']);
    assert.equal(await textOf(CUT), came);
    await page.getByText('Cut off: its page was closed or loaded again.').waitFor();
    await page.locator(`${DONE} [data-token="6"]`).hover();
    assert.match((await page.locator('.alternatives').textContent()) ?? '', /wrote/);
    await button('Go on');
    await page.locator(CUT).waitFor({ state: 'detached' });
    await page.mouse.move(0, 0);
    await page.locator('.alternatives').waitFor({ state: 'detached' });
    assert.equal(await textOf('.turn-answer'), came);
    goOn();
    await page.locator(DONE).nth(1).waitFor();
    const whole = await textOf('.turn-answer');
    assert.ok(whole.startsWith(came) && whole.endsWith('The end.'), whole);
    assert.equal(await page.locator('.branches').count(), 0);
    await reload();
    await page.locator(DONE).nth(1).waitFor();
    browser.assertNothingWrong();
  });

  it('are listed, found by words of titles and texts, renamed by keyboard, deleted and brought back', async () => {
    await start(null);
    await ask('Why do foxes write?');
    await button('New chat');
    await page.locator(QUESTIONS).waitFor({ state: 'detached' });
    await ask('What is an owl?');
    await list(2);
    assert.deepEqual(await titles(), ['What is an owl?', 'Why do foxes write?']);
    await button('Rename: Why do foxes write?');
    await page.locator('.conversation-rename input:focus').waitFor();
    await page.keyboard.type('On foxes');
    await page.keyboard.press('Enter');
    await page.getByText('On foxes', { exact: true }).waitFor();
    await page.getByLabel('Search conversations').fill('DO FOXES');
    await list(1);
    assert.match((await page.locator('.conversation-row').textContent()) ?? '', /On foxes.*Why do foxes write\?/);
    await page.getByLabel('Search conversations').fill('no such words');
    await page.getByText('None has these words.').waitFor();
    await page.getByLabel('Search conversations').fill('');
    await button('Delete: What is an owl?');
    await page.getByText('Deleted “What is an owl?”.').waitFor();
    await list(1);
    assert.deepEqual(await questions(), []);
    await reload();
    await list(1);
    await button('Delete: On foxes');
    await page.getByText('No conversation yet.').waitFor();
    await button('Undo');
    await list(1);
    await reload();
    await list(1);
    await button('On foxes');
    await page.locator(DONE).waitFor();
    assert.deepEqual(await questions(), ['Why do foxes write?']);
    browser.assertNothingWrong();
  });

  it('branch where a question is edited or an answer asked again, and arrows switch by keyboard', async () => {
    await start(null);
    await ask('One?');
    await ask('Two?');
    await button('Edit');
    await page.getByLabel('The question').fill('Uno?');
    await button('Ask from here');
    await page.locator(DONE).waitFor();
    await page.waitForFunction(`document.querySelectorAll('.turn-answer').length === 1`);
    await page.locator(DONE).waitFor();
    assert.deepEqual(await questions(), ['Uno?']);
    const versions = page.getByRole('group', { name: 'Versions of the question' });
    assert.match((await versions.textContent()) ?? '', /2 of 2/);
    await versions.getByRole('button', { name: 'The version before' }).focus();
    await page.keyboard.press('Enter');
    await page.getByText('Two?').waitFor();
    assert.deepEqual(await questions(), ['One?', 'Two?']);
    await page.keyboard.press('ArrowRight');
    await page.getByText('Uno?').waitFor();
    await page.keyboard.press('ArrowLeft');
    await page.getByText('Two?').waitFor();
    await page.getByRole('button', { name: 'Ask again' }).last().click();
    await page.getByRole('group', { name: 'Versions of the answer' }).getByText('2 of 2').waitFor();
    await page.locator(DONE).nth(1).waitFor();
    await reload();
    await page.getByText('Two?').waitFor();
    assert.match((await versions.textContent()) ?? '', /1 of 2/);
    browser.assertNothingWrong();
  });

  it('are exported as a file for odmoe chat, and imported from one', async () => {
    await start(null);
    await page.getByText('Settings', { exact: true }).click();
    await page.getByLabel('System message').fill('Be brief.');
    await ask('A story?');
    await list(1);
    const download = page.waitForEvent('download');
    await button('Export: A story?');
    const saved = await download;
    assert.equal(saved.suggestedFilename(), 'A-story.jsonl');
    const exported = parseConversation(readFileSync(await saved.path(), 'utf8'), 'f');
    assert.deepEqual(allMessages(exported), [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'A story?' },
      { role: 'assistant', content: SAMPLE_ANSWER },
    ]);
    const file = join(folder, 'talk.jsonl');
    const messages = [
      { role: 'system', content: 'Be kind.' },
      { role: 'user', content: 'Hello' },
      { role: 'assistant', content: 'Good day.' },
    ];
    writeFileSync(file, formatConversation(terminalConversation(messages)));
    await page.getByLabel('File of a conversation').setInputFiles(file);
    await page.getByText('Good day.').waitFor();
    assert.deepEqual(await questions(), ['Hello']);
    assert.equal(await page.getByLabel('System message').inputValue(), 'Be kind.');
    await button('Undo');
    assert.equal(await page.getByLabel('System message').inputValue(), 'Be brief.');
    await list(2);
    writeFileSync(file, readFileSync(file, 'utf8').slice(0, 70));
    await page.getByLabel('File of a conversation').setInputFiles(file);
    await page.getByText(/talk\.jsonl holds no conversation: line 2 is not JSON/).waitFor();
    browser.assertNothingWrong();
  });

  it('of two tabs lose nothing: an answer is shown and stopped in the other one, and both may ask at once', async () => {
    await start(null);
    await ask('One?');
    await list(1);
    const other = await browser.open(url);
    other.setDefaultTimeout(PATIENCE_MS);
    await button('Conversations', other);
    await other.locator('.conversation-open').click();
    await other.locator(DONE).waitFor();
    hold();
    await ask('Two?', page, STREAMING);
    await other.locator(STREAMING).getByText('Under way in another tab.').waitFor();
    await button('Stop', other);
    await page.locator('.turn-answer[data-state="stopped"]').waitFor();
    await other.locator('.turn-answer[data-state="stopped"]').waitFor();
    await askAtOnce([page, 'From the one?'], [other, 'From the other?']);
    goOn();
    await Promise.all([page, other].map((tab) => tab.locator(DONE).nth(1).waitFor()));
    await Promise.all([page, other].map((tab) => tab.getByText('2 of 2').or(tab.getByText('1 of 2')).waitFor()));
    assert.equal((await questions()).at(-1), 'From the one?');
    assert.equal((await questions(other)).at(-1), 'From the other?');
    await other.close();
    await reload();
    await page.getByText(/[12] of 2/).waitFor();
    browser.assertNothingWrong();
  });

  it('that another tab deletes stay where they are shown, and may be kept again', async () => {
    await start(null);
    await ask('One?');
    const other = await browser.open(url);
    other.setDefaultTimeout(PATIENCE_MS);
    await button('Conversations', other);
    await button('Delete: One?', other);
    await page.getByText('Another tab has deleted this conversation.').waitFor();
    assert.deepEqual(await questions(), ['One?']);
    await ask('Two?');
    await other.getByText('No conversation yet.').waitFor();
    await button('Keep it');
    await other.locator('.conversation-row').waitFor();
    await reload();
    await page.locator(DONE).nth(1).waitFor();
    assert.deepEqual(await questions(), ['One?', 'Two?']);
    browser.assertNothingWrong();
  });

  it('stay in memory alone where the user wants nothing kept', async () => {
    await start(null);
    await button('Conversations');
    await page.getByLabel('Keep conversations and settings in this browser').uncheck();
    await button('Conversations');
    await page.getByText('Settings', { exact: true }).click();
    await page.getByLabel('System message').fill('A secret.');
    await ask('A secret?');
    await button('New chat');
    await page.locator(QUESTIONS).waitFor({ state: 'detached' });
    await list(1);
    assert.match((await page.locator('.conversation-row').textContent()) ?? '', /in this tab alone/);
    assert.doesNotMatch(await page.evaluate<string>('JSON.stringify({ ...localStorage })'), /secret/);
    await reload();
    await button('Conversations');
    await page.getByText('No conversation yet.').waitFor();
    assert.equal(await page.getByLabel('Keep conversations and settings in this browser').isChecked(), false);
    browser.assertNothingWrong();
  });

  it('that find no room are not lost silently, and are kept once there is some', async () => {
    await start(null);
    await ask('One?');
    // Chromium's own limit of room (Storage.overrideQuotaForOrigin) changes nothing for a page in a headless browser.
    await page.evaluate<void>(`window.put = IDBObjectStore.prototype.put;
      IDBObjectStore.prototype.put = () => { throw new DOMException('full', 'QuotaExceededError'); }`);
    await ask('Two?');
    await page.getByText(/The browser has no more room for conversations/).waitFor();
    assert.equal((await questions()).length, 2);
    const download = page.waitForEvent('download');
    await button('Export this one');
    assert.match(readFileSync(await (await download).path(), 'utf8'), /Two\?/);
    await page.evaluate<void>('void (IDBObjectStore.prototype.put = window.put)');
    await ask('Three?');
    await page.getByText(/no more room/).waitFor({ state: 'detached' });
    await reload();
    await page.locator(DONE).nth(2).waitFor();
    browser.assertNothingWrong();
  });

  it('may be deleted at a log-out', async () => {
    await start(KEY);
    const logIn = async (): Promise<void> => {
      await page.getByLabel('API key').fill(KEY);
      await button('Open');
      await page.getByLabel('Your question').waitFor();
    };
    await logIn();
    await ask('One?');
    await button('Log out');
    await page.getByText('A conversation is kept in this browser.').waitFor();
    await button('Stay');
    await button('Log out');
    await button('Log out and keep them');
    await page.getByLabel('API key').waitFor();
    await logIn();
    await page.locator(DONE).waitFor();
    await button('Log out');
    await button('Log out and delete them');
    await page.getByLabel('API key').waitFor();
    await logIn();
    await button('Conversations');
    await page.getByText('No conversation yet.').waitFor();
    browser.assertNothingWrong([/status of 401/]);
  });

  it('need no sideways scroll on a phone and at twice the size, with all that stands around them, and axe finds nothing', async () => {
    await start(null);
    await ask(`A${'long'.repeat(60)}?`);
    await button('Edit');
    await page.getByLabel('The question').fill('Another?');
    await button('Ask from here');
    await page.getByText('2 of 2').waitFor();
    await list(1);
    await button('Delete the conversation');
    await page.getByText(/^Deleted/).waitFor();
    await button('Undo');
    await list(1);
    assert.deepEqual(await axeFaults(page), []);
    for (const [width, height] of [
      [390, 844],
      [640, 400],
    ] as const) {
      await page.setViewportSize({ width, height });
      const used = await page.evaluate<number>('document.documentElement.scrollWidth');
      assert.ok(used <= width, `${used} pixels are wide, of ${width}`);
    }
    browser.assertNothingWrong();
  });
});
