import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import type { Locator, Page } from 'playwright-core';
import { sampleCluster } from '../dashboard/sample-cluster.js';
import { axeFaults } from './harness/axe.js';
import type { TestBrowser } from './harness/browser.js';
import { SampleSite, startBrowserOrSkip } from './harness/sample-site.js';

const DESK = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };
const PHONE_WITH_KEYBOARD = { width: 390, height: 420 };
/** The window DESK at a zoom of 200 %. */
const ZOOMED = { width: 640, height: 400 };
const CONTEXT = 300;

interface AskedBody {
  messages: { role: string; content: string | null; tool_call_id?: string; tool_calls?: unknown[] }[];
  [field: string]: unknown;
}

describe('the composer of the page in a browser', function () {
  this.timeout(60_000);
  let site: SampleSite;
  let browser: TestBrowser;
  let page: Page;
  /** The second half of the model's answers waits for it. */
  let halfway = Promise.resolve();
  /** Bodies of the requests for answers. */
  let asked: AskedBody[] = [];
  /** Answers in place of the model. */
  let answerInPlace: ((body: AskedBody, response: ServerResponse) => boolean) | null = null;

  before(async function () {
    browser = await startBrowserOrSkip(this, { viewport: DESK, permissions: ['clipboard-read', 'clipboard-write'] });
    site = await SampleSite.start({
      halfway: () => halfway,
      changes: () => ({ model: { ...sampleCluster(0).model, contextPositions: CONTEXT } }),
      chat: (text, response) => {
        const body = JSON.parse(text) as AskedBody;
        asked.push(body);
        return answerInPlace?.(body, response) ?? false;
      },
    });
  });

  after(async () => {
    await browser?.close();
    site?.close();
  });

  beforeEach(async () => {
    asked = [];
    answerInPlace = null;
    halfway = Promise.resolve();
    page = await browser.open(`${site.url}/#chat`);
    await page.getByText(/of 300 tokens/).waitFor();
  });

  afterEach(async () => {
    // Kept settings would change the next test.
    await page.evaluate('localStorage.clear()');
    await page.close();
    browser.assertNothingWrong([/status of 400/]);
  });

  const composer = (): Locator => page.getByLabel('Your question');

  async function ask(text: string): Promise<void> {
    const before = await page.locator('.turn-answer').count();
    await composer().fill(text);
    await composer().press('Enter');
    await page.locator('.turn-answer:not([aria-busy="true"])').nth(before).waitFor();
  }

  /** Refuses as main does. */
  function refuse(response: ServerResponse, error: object): true {
    response.writeHead(400, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ error: { type: 'invalid_request_error', ...error } }));
    return true;
  }

  function stream(response: ServerResponse, choices: readonly object[]): true {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const choice of choices) response.write(`data: ${JSON.stringify({ choices: [choice] })}\n\n`);
    response.end('data: [DONE]\n\n');
    return true;
  }

  const focusOn = (label: string): Promise<void> => page.locator(`[aria-label="${label}"]:focus`).waitFor();

  it('has the focus when the view opens, grows with its text up to a bound, and has it again after an answer', async () => {
    await focusOn('Your question');
    await page.keyboard.type('One line');
    const height = async (): Promise<number> => (await composer().boundingBox())?.height ?? 0;
    const low = await height();
    for (let line = 0; line < 5; line++) {
      await page.keyboard.press('Shift+Enter');
      await page.keyboard.type('and another');
    }
    const grown = await height();
    assert.ok(grown > low + 60, `${low} to ${grown} pixels`);
    await composer().fill('line\n'.repeat(200));
    assert.ok((await height()) <= DESK.height * 0.4 + 1, `${await height()} pixels`);
    await ask('A story?');
    await focusOn('Your question');
    assert.ok((await height()) <= low + 1, 'it is low again');
    assert.equal(asked[0]?.messages[0]?.content, 'A story?');
  });

  it('does what its keys say, and leaves those of a composed text alone', async () => {
    let goOn = (): void => undefined;
    halfway = new Promise((resolve) => (goOn = resolve));
    await composer().fill('Stop in the midst?');
    await page.keyboard.press('Enter');
    await page.locator('.turn-answer[data-state="streaming"]').waitFor();
    await page.keyboard.press('Escape');
    await page.locator('.turn-answer[data-state="stopped"]').waitFor();
    goOn();
    await page.keyboard.press('ArrowUp');
    const editor = page.getByLabel('The question');
    await editor.waitFor();
    assert.equal(await editor.inputValue(), 'Stop in the midst?');
    await focusOn('The question');
    await page.getByRole('button', { name: 'Leave it' }).click();
    await composer().focus();
    await page.keyboard.type('Why?');
    assert.equal(await composer().inputValue(), 'Why?', 'a question mark is typed');
    await page.evaluate(
      `document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', isComposing: true, bubbles: true }))`,
    );
    assert.equal(asked.length, 1, 'Enter ended a composition alone');
    await page.locator('h1').click();
    await page.evaluate('document.activeElement.blur()');
    await page.keyboard.press('?');
    const list = page.getByRole('dialog', { name: 'Keys' });
    await list.waitFor();
    assert.match((await list.textContent()) ?? '', /Esc.*stops the answer/);
    await page.keyboard.press('Escape');
    await list.waitFor({ state: 'hidden' });
    await composer().fill('');
    await page.keyboard.press('Control+Shift+O');
    await page.locator('.turn').first().waitFor({ state: 'detached' });
    await focusOn('Your question');
  });

  for (const [name, size] of Object.entries({ DESK, PHONE, PHONE_WITH_KEYBOARD, ZOOMED })) {
    it(`stands whole above the window's end and the tabs: ${name}`, async () => {
      await page.setViewportSize(size);
      await ask('A story?');
      await composer().fill('one\ntwo\nthree');
      const box = await page.locator('.composer').boundingBox();
      const tabs = await page.locator('.tabs').boundingBox();
      assert.ok(box !== null && tabs !== null);
      const isTabsBelow = tabs.y > size.height / 2;
      const end = isTabsBelow ? tabs.y : size.height;
      assert.ok(box.y >= 0 && box.y + box.height <= end + 1, `${JSON.stringify({ box, tabs })}`);
      assert.ok(box.height < size.height / 2, `${box.height} of ${size.height} pixels`);
      assert.ok(end - box.y - box.height <= 48, 'it is at the end');
      const width = await page.evaluate<number>('document.documentElement.scrollWidth');
      assert.ok(width <= size.width, `${width} pixels are wide`);
      assert.deepEqual(await axeFaults(page), []);
    });
  }

  it("tells the context's use by main's numbers, and about how much with what is typed", async () => {
    await ask('A story?');
    await page
      .locator('.context-meter')
      .filter({ hasText: /^235 of 300 tokens$/ })
      .waitFor();
    await composer().fill('four words of mine');
    await page
      .locator('.context-meter')
      .filter({ hasText: /^about 239 of 300 tokens$/ })
      .waitFor();
    await composer().fill('word '.repeat(70));
    await page.getByText("longer than the model's context").waitFor();
    await page.getByRole('button', { name: 'Drop the oldest turns' }).click();
    await page.getByText('The 2 turns above are not sent').waitFor();
    await composer().press('Enter');
    await page.locator('.turn-answer[data-state="done"]').nth(1).waitFor();
    assert.deepEqual(
      asked[1]?.messages.map(({ role }) => role),
      ['user'],
    );
    await page.getByRole('button', { name: 'Send them again' }).click();
    await ask('And now?');
    assert.equal(asked[2]?.messages.length, 5);
  });

  it('drops as few of the oldest turns as a refused prompt needs, and asks again', async () => {
    for (const question of ['One?', 'Two?', 'Three?']) await ask(`${question} ${'word '.repeat(40)}`);
    answerInPlace = ({ messages }, response) =>
      messages.length > 5 && refuse(response, { message: 'the prompt is too long', code: 'context_length_exceeded' });
    await ask(`Four? ${'word '.repeat(90)}`);
    await page.getByRole('button', { name: 'Drop the oldest turns and ask again' }).click();
    await page.getByText('The 2 turns above are not sent').waitFor();
    await page.locator('.turn-answer[data-state="done"]').nth(3).waitFor();
    assert.match(asked.at(-1)?.messages[0]?.content ?? '', /^Two\?/);
    assert.equal(asked.at(-1)?.messages.length, 5);
    assert.deepEqual(await axeFaults(page), []);
  });

  it('sends all settings, says what is wrong with one, and goes back to the defaults and to what was there', async () => {
    await page.getByText('Settings').click();
    await page.getByLabel('Top k').fill('40');
    await page.getByLabel('Min p').fill('0.05');
    await page.getByLabel('Stop texts').fill('END\n"\\n\\n"');
    await page.getByLabel('Thinking', { exact: true }).selectOption('off');
    await page.getByLabel('Logit bias').fill('{"17": -100');
    await composer().fill('A story?');
    await composer().press('Enter');
    await page.getByRole('alert').filter({ hasText: 'Logit bias: this is no JSON' }).waitFor();
    assert.equal(asked.length, 0);
    await page.getByLabel('Logit bias').fill('{"17": -100}');
    await page.getByLabel('Answer', { exact: true }).selectOption('schema');
    await page.getByLabel('JSON schema of the answer').fill('{"type": "object", "if": {}}');
    answerInPlace = (body, response) =>
      body.response_format !== undefined &&
      refuse(response, { message: 'the keyword "if" is not supported', param: 'response_format.json_schema.schema' });
    await ask('A story?');
    const schema = page.locator('[data-setting="schema"]');
    assert.equal(await schema.getAttribute('aria-invalid'), 'true');
    await page.locator('.setting', { has: schema }).getByText('the keyword "if" is not supported').waitFor();
    const [first] = asked;
    assert.ok(first !== undefined);
    const { top_k: topK, min_p: minP, stop, enable_thinking: thinking, logit_bias: bias } = first;
    assert.deepEqual([topK, minP, stop, thinking, bias], [40, 0.05, ['END', '\n\n'], false, { 17: -100 }]);
    await schema.fill('{"type": "object"}');
    assert.equal(await schema.getAttribute('aria-invalid'), 'false');
    assert.deepEqual(await axeFaults(page), []);
    await page.getByRole('button', { name: 'Reset to defaults' }).click();
    assert.equal(await page.getByLabel('Top k').inputValue(), '');
    await page.getByRole('button', { name: 'Undo the reset' }).click();
    assert.equal(await page.getByLabel('Top k').inputValue(), '40');
    await page.reload();
    await page.getByText('Settings').click();
    assert.equal(await page.getByLabel('Top k').inputValue(), '40', 'the browser keeps it');
  });

  it('shows the calls of tools, and goes on with what the user says for them', async () => {
    const call = (index: number, more: object): object => ({ delta: { tool_calls: [{ index, ...more }] } });
    answerInPlace = ({ messages }, response) =>
      messages.at(-1)?.role === 'user' &&
      stream(response, [
        call(0, { id: 'call-1', type: 'function', function: { name: 'weather', arguments: '' } }),
        call(0, { function: { arguments: '{"town":"Bern","digits"' } }),
        call(0, { function: { arguments: ':12345678901234567890}' } }),
        { delta: {}, finish_reason: 'tool_calls' },
      ]);
    await page.getByText('Settings').click();
    await page.getByLabel('Tools', { exact: true }).fill('{"description": "has no name"}');
    await page.getByText('tool 1 has no name').waitFor();
    await page.getByLabel('Tools', { exact: true }).fill('[{"name": "weather", "parameters": {"type": "object"}}]');
    await page.getByLabel('Which tool').selectOption('weather');
    await ask('How is the weather?');
    assert.deepEqual(asked[0]?.tool_choice, { type: 'function', function: { name: 'weather' } });
    const shown = page.locator('.tool-arguments');
    assert.equal(await shown.textContent(), '{\n  "town": "Bern",\n  "digits": 12345678901234567890\n}');
    assert.deepEqual(await axeFaults(page), []);
    await page.getByLabel('Result of weather').fill('sunny');
    await page.getByRole('button', { name: 'Send the result' }).click();
    await page.locator('.turn-answer[data-state="done"]').nth(1).waitFor();
    assert.equal(asked[1]?.tool_choice, 'auto');
    const [, answer, result] = asked[1]?.messages ?? [];
    assert.equal(answer?.tool_calls?.length, 1);
    assert.deepEqual([result?.role, result?.content, result?.tool_call_id], ['tool', 'sunny', 'call-1']);
    await page.getByRole('region', { name: 'Result of weather' }).waitFor();
  });

  it('takes text files by a button, dropped and pasted, and says why it leaves others', async () => {
    const text = (name: string, content: string): object => ({ name, mimeType: '', buffer: Buffer.from(content) });
    const input = page.locator('input[type="file"]');
    await composer().fill('What is in it?');
    await input.setInputFiles([
      text('fence.md', 'a ``` fence'),
      { name: 'cat.png', mimeType: 'image/png', buffer: Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 1]) },
      { name: 'big.log', mimeType: '', buffer: Buffer.alloc(250_001, 'x') },
    ] as never);
    await page.getByRole('alert').filter({ hasText: 'cat.png is no text' }).waitFor();
    assert.match((await page.getByRole('alert').textContent()) ?? '', /big\.log has 250 KB; a file may have 250 KB/);
    const value = await composer().inputValue();
    assert.equal(value, 'What is in it?\nFile `fence.md`:\n````md\na ``` fence\n````\n');
    const drop = (kind: string): string => `(() => {
      const data = new DataTransfer();
      data.items.add(new File(['of ${kind}'], '${kind}.txt'));
      const target = document.querySelector('[aria-label="Your question"]');
      const more = { bubbles: true, cancelable: true };
      if ('${kind}' === 'paste') return target.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, ...more }));
      target.dispatchEvent(new DragEvent('dragover', { dataTransfer: data, ...more }));
      return document.querySelector('.turns, .chat-empty').dispatchEvent(new DragEvent('drop', { dataTransfer: data, ...more }));
    })()`;
    for (const kind of ['drop', 'paste']) {
      assert.equal(await page.evaluate(drop(kind)), false, 'the browser does not open the file');
      await page.waitForFunction(`document.querySelector('[aria-label="Your question"]').value.includes('of ${kind}')`);
    }
    assert.match(await composer().inputValue(), /File `drop\.txt`:\n```txt\nof drop\n```\n/);
  });
});
