import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import type { Locator, Page } from 'playwright-core';
import { axeFaults } from './harness/axe.js';
import type { TestBrowser } from './harness/browser.js';
import { SampleSite, startBrowserOrSkip } from './harness/sample-site.js';

const DESK = { width: 1280, height: 800 };
/** The window DESK at a zoom of 200 %. */
const ZOOMED = { width: 640, height: 400 };
/** The place in an answer at which its stream waits until the test lets it go on. */
const WAIT = '⏸';

const ANSWER = `## Sizes

An **important** [link](https://example.org/a) and ![cat](https://example.org/cat.png), \`code\` and $a_1 * b_2$ <|im_end|>.

| Expert | Size |
| --- | ---: |
| first | 12 MB |

- [x] done
- open
  > quoted

\`\`\`python
def f(x):
    return "${'long '.repeat(60)}"
\`\`\`

שלום עולם

<script>document.title = 'run'</script> <img src=x onerror="document.title='run'"> [j](javascript:document.title='run') \u202e end`;

interface Answered {
  reasoning?: string;
  text: string;
  /** Without log-probabilities the page knows no tokens. */
  hasTokens?: boolean;
}

describe('answers on the page in a browser', function () {
  this.timeout(120_000);
  let site: SampleSite;
  let browser: TestBrowser;
  let page: Page;
  let answered: Answered = { text: '' };
  let goOn = (): void => undefined;
  let isSilent = false;

  before(async function () {
    browser = await startBrowserOrSkip(this, { viewport: DESK, permissions: ['clipboard-read', 'clipboard-write'] });
    site = await SampleSite.start({
      isSilent: () => isSilent,
      chat: (_body, response) => {
        void stream(response, answered);
        return true;
      },
    });
  });

  after(async () => {
    await browser?.close();
    site?.close();
  });

  beforeEach(async () => {
    page = await browser.open(`${site.url}/#chat`);
    page.setDefaultTimeout(60_000);
  });

  afterEach(async () => {
    await page.close();
    browser.assertNothingWrong();
  });

  /** Each word with the blank before it is a token; every third one is unlikely. */
  async function stream(response: ServerResponse, { reasoning = '', text, hasTokens = true }: Answered): Promise<void> {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const tell = (choice: object): boolean => response.write(`data: ${JSON.stringify({ choices: [choice] })}\n\n`);
    const send = async (whole: string, chunk: (piece: string, index: number) => object): Promise<void> => {
      const [begin = '', end] = whole.split(WAIT);
      pieces(begin).forEach((piece, index) => tell(chunk(piece, index)));
      if (end === undefined) return;
      await new Promise<void>((resolve) => (goOn = resolve));
      pieces(end).forEach((piece, index) => tell(chunk(piece, index)));
    };
    await send(reasoning, (piece) => ({ delta: { reasoning_content: piece }, logprobs: null }));
    await send(text, (piece, index) => ({
      delta: { content: piece },
      logprobs: hasTokens ? { content: [entry(piece, index % 3 === 2 ? 0.05 : 0.97)] } : null,
    }));
    tell({ delta: {}, finish_reason: 'stop' });
    response.end('data: [DONE]\n\n');
  }

  function entry(token: string, probability: number): object {
    const logprob = Math.log(probability);
    const other = { token: ' other', logprob: Math.log((1 - probability) / 2) };
    return { token, logprob, top_logprobs: [{ token, logprob }, other] };
  }

  function pieces(text: string): string[] {
    // A text of many words comes in large pieces, so that the test does not take long.
    return text.length > 10_000 ? (text.match(/[^]{1,20000}/g) ?? []) : (text.match(/\s*\S+|\s+/g) ?? []);
  }

  async function ask(given: Answered): Promise<Locator> {
    answered = given;
    await page.getByLabel('Your question').fill('How?');
    await page.getByLabel('Your question').press('Enter');
    return page.locator('.turn-answer').last();
  }

  async function askWhole(given: Answered): Promise<Locator> {
    const answer = await ask(given);
    await page.locator('.turn-answer[data-state="done"]').last().waitFor();
    return answer;
  }

  const text = async (locator: Locator): Promise<string> => (await locator.textContent()) ?? '';

  it('are Markdown whose code can be copied; nothing in it runs or loads', async () => {
    const answer = await askWhole({ text: ANSWER });
    assert.equal(await text(answer.locator('h2')), 'Sizes');
    assert.equal(await text(answer.locator('strong')), 'important');
    const links = answer.locator('a');
    assert.deepEqual(await links.allTextContents(), ['link', 'cat']);
    for (const index of [0, 1]) assert.match((await links.nth(index).getAttribute('rel')) ?? '', /noopener/);
    assert.deepEqual(await answer.locator('td').allTextContents(), ['first', '12 MB']);
    assert.equal(await answer.locator('li').count(), 2);
    assert.equal(await text(answer.locator('li blockquote')), 'quoted');
    assert.equal(await text(answer.locator('p .formula')), '$a_1 * b_2$');
    assert.equal(await text(answer.locator('.special-token')), '<|im_end|>');
    assert.equal(await text(answer.locator('.sign')), 'U+202E');
    assert.equal(await text(answer.locator('.code-head .quiet')), 'python');
    await answer.getByRole('button', { name: 'Copy the code' }).click();
    const copied = await page.evaluate<string>('navigator.clipboard.readText()');
    assert.match(copied, /^def f\(x\):\n {4}return "(long )+"$/);
    assert.match(await text(answer.locator('.markdown')), /<script>document\.title = 'run'<\/script> <img src=x/);
    assert.equal(await answer.locator('img, script, iframe, [onerror]').count(), 0);
    assert.doesNotMatch(await page.title(), /run/);
  });

  it('are drawn while they arrive: unclosed code is code, and what was drawn stays', async () => {
    const answer = await ask({
      text: `# Head\n\nA **bold** word.\n\n\`\`\`js\nlet a = 1;\n${WAIT}let b;\n\`\`\`\n\nThe end.`,
    });
    await answer.locator('pre', { hasText: 'let a = 1;' }).waitFor();
    assert.equal(await answer.getAttribute('data-state'), 'streaming');
    await page.evaluate('document.querySelector(".turn-answer strong").setAttribute("data-kept", "yes")');
    goOn();
    await answer.getByText('The end.').waitFor();
    assert.equal(await text(answer.locator('pre')), 'let a = 1;\nlet b;');
    assert.equal(await answer.locator('strong[data-kept]').count(), 1, 'the first blocks are not drawn again');
  });

  it('have shades of unsure tokens with a legend, and a switch that is remembered', async () => {
    const answer = await askWhole({ text: 'One **two three four** five `six seven`.' });
    assert.equal(await text(answer.locator('strong .token-4')), ' three');
    assert.deepEqual(await page.locator('.tint-legend li').allTextContents(), [
      'below 90 %',
      'below 60 %',
      'below 30 %',
      'below 10 %',
    ]);
    await answer.locator('strong .token-4').hover();
    assert.match(await text(page.locator('.alternatives')), /␣three.*5\.0 %.*␣other/);
    await page.getByLabel('Shade unsure tokens').uncheck();
    assert.equal(await page.locator('[data-token], .alternatives, .tint-legend').count(), 0);
    assert.equal(await text(answer.locator('strong')), 'two three four');
    await page.reload();
    const plain = await askWhole({ text: 'One two three.' });
    assert.equal(await plain.locator('[data-token]').count(), 0);
    await page.getByLabel('Shade unsure tokens').check();
    assert.equal(await plain.locator('[data-token]').count(), 3);
  });

  it('open the alternatives of a token for a pointer that moves alone, and close them for a key elsewhere', async () => {
    const answer = await ask({ text: `one two three ${WAIT}four five six` });
    const third = answer.locator('[data-token="2"]');
    await third.waitFor();
    const box = await third.boundingBox();
    assert.ok(box !== null);
    // The line of the next token comes under the pointer, which rests.
    await page.mouse.move(box.x + box.width + 20, box.y + box.height / 2);
    goOn();
    await page.locator('.turn-answer[data-state="done"]').last().waitFor();
    assert.equal(await answer.locator('.alternatives').count(), 0);
    await third.hover();
    await answer.locator('.alternatives').waitFor();
    await page.getByLabel('Your question').press('a');
    await answer.locator('.alternatives').waitFor({ state: 'detached' });
  });

  it('say where main is silent that they go on with main, and do', async () => {
    const answer = await ask({ text: `before ${WAIT}after` });
    await answer.getByText('before').waitFor();
    isSilent = true;
    await answer.getByText('Main is silent. The answer goes on when main does').waitFor();
    isSilent = false;
    await answer.getByText('Main is silent').waitFor({ state: 'detached' });
    goOn();
    await page.locator('.turn-answer[data-state="done"]').last().getByText('before after').waitFor();
  });

  it('tell the alternatives of each token by keyboard, also of tokens that are marks alone', async () => {
    const answer = await askWhole({ text: 'One\n\n- two *three*' });
    const box = answer.getByRole('group', { name: /token by token/ });
    await box.focus();
    const shown = async (): Promise<string> => text(page.locator('.alternatives p code'));
    const seen: string[] = [];
    for (let step = 0; step < 4; step++) {
      await page.keyboard.press('ArrowRight');
      seen.push(await shown());
    }
    assert.deepEqual(seen, ['One', '⏎⏎-', '␣two', '␣*three*']);
    await page.keyboard.press('ArrowLeft');
    assert.equal(await shown(), '␣two');
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('.alternatives').count(), 0);
  });

  it('are plain Markdown where no tokens are known', async () => {
    const answer = await askWhole({ text: '**One** two', hasTokens: false });
    assert.equal(await text(answer.locator('strong')), 'One');
    assert.equal(await answer.locator('[data-token]').count(), 0);
  });

  it('are copied as Markdown; where the clipboard is forbidden, the text is shown and selected', async () => {
    const answer = await askWhole({ text: ANSWER });
    const copy = answer.getByRole('button', { name: 'Copy', exact: true });
    await copy.first().waitFor();
    await answer.locator('.answer-foot').getByRole('button', { name: 'Copy', exact: true }).click();
    await page.getByRole('button', { name: 'Copied' }).waitFor();
    assert.equal(await page.evaluate<string>('navigator.clipboard.readText()'), ANSWER);
    await page.evaluate('navigator.clipboard.writeText = () => Promise.reject(new Error("forbidden"))');
    await askWhole({ text: 'Another **one**' });
    const foot = page.locator('.answer-foot').last();
    await foot.getByRole('button', { name: 'Copy', exact: true }).click();
    await foot.locator('.text-to-copy').waitFor();
    assert.equal(await page.evaluate<string>('getSelection().toString()'), 'Another **one**');
  });

  it('have their numbers, seed and command in a fold', async () => {
    const answer = await askWhole({ text: 'One' });
    const curl = answer.getByRole('button', { name: 'Copy as curl' });
    assert.equal(await curl.isVisible(), false);
    assert.equal(await answer.getByText(/seed \d+/).isVisible(), false);
    await answer.getByText('Details').focus();
    await page.keyboard.press('Enter');
    await curl.waitFor();
    assert.equal(await answer.getByText(/seed \d+/).isVisible(), true);
  });

  it('have reasoning that is folded, counted while it arrives, and Markdown', async () => {
    const answer = await ask({ reasoning: `I **think** so.\n\n- first${WAIT}\n- second`, text: 'Yes.' });
    await answer.getByText('Thinks… 5 words').waitFor();
    assert.equal(await answer.locator('.reasoning strong').count(), 0, 'it is folded');
    await answer.getByText('Thinks…').click();
    assert.equal(await text(answer.locator('.reasoning strong')), 'think');
    goOn();
    await answer.getByText('Reasoning: 7 words').waitFor();
    assert.deepEqual(await answer.locator('.reasoning li').allTextContents(), ['first', 'second']);
  });

  it('have the direction of their script, block by block, as the questions have', async () => {
    const answer = await askWhole({ text: 'Latin\n\nשלום עולם\n\n- مرحبا\n\n```\nשלום code\n```' });
    const directions = await page.evaluate<string[]>(
      '[...document.querySelectorAll(".markdown p, .markdown ul, .markdown pre")].map((each) => getComputedStyle(each).direction)',
    );
    assert.deepEqual(directions, ['ltr', 'rtl', 'rtl', 'rtl', 'ltr']);
    assert.equal(await answer.locator('li p').getAttribute('dir'), 'auto');
    await page.getByLabel('Your question').fill('שלום');
    const direction = 'getComputedStyle(document.querySelector(".composer textarea")).direction';
    assert.equal(await page.evaluate<string>(direction), 'rtl');
  });

  it('are printed alone, dark on white, with all of their code', async () => {
    await askWhole({ reasoning: 'Hm.', text: ANSWER });
    await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
    const hidden =
      '.header, .chat-head, .chat-settings, .tint-switch, .composer, .turn button, .answer-foot, .reasoning';
    for (const each of await page.locator(hidden).all()) assert.equal(await each.isVisible(), false);
    assert.ok(await page.locator('.turn-question').isVisible());
    const colours = await page.evaluate<string[]>(
      '[getComputedStyle(document.querySelector(".markdown p")).color, getComputedStyle(document.documentElement).backgroundColor, getComputedStyle(document.querySelector(".token.token-4")).backgroundColor]',
    );
    assert.deepEqual(colours, ['rgb(0, 0, 0)', 'rgb(255, 255, 255)', 'rgba(0, 0, 0, 0)']);
    const cut = await page.evaluate<number>(
      '(() => { const box = document.querySelector("pre"); return box.scrollWidth - box.clientWidth; })()',
    );
    assert.equal(cut, 0);
    await page.emulateMedia({ media: null, colorScheme: null });
  });

  it('pass axe, and fit at a zoom of 200 %, in light and dark', async () => {
    await askWhole({ reasoning: 'Hm **so**.', text: ANSWER });
    await page.getByText('Reasoning:').click();
    await page.getByText('Details').click();
    await page.setViewportSize(ZOOMED);
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      assert.deepEqual(await axeFaults(page), []);
    }
    const excess = 'document.documentElement.scrollWidth - document.documentElement.clientWidth';
    assert.equal(await page.evaluate<number>(excess), 0);
    await page.setViewportSize(DESK);
    await page.emulateMedia({ colorScheme: null });
  });

  for (const [name, hostile] of Object.entries({
    'lists in 10,000 levels': `${'- '.repeat(10_000)}a`,
    'a line of 1 MB': 'word *x* '.repeat(110_000),
    'quotes in 100,000 levels': '>'.repeat(100_000),
    'links that never end': `${'[a]('.repeat(4000)}\n\n`.repeat(5),
    'a table of 5000 columns': `${'|a'.repeat(5000)}|\n${'|-'.repeat(5000)}|\n|b|`,
  })) {
    it(`do not stop the page by ${name}`, async () => {
      const answer = await askWhole({ text: `${hostile}\n\nThe end.` });
      await answer.getByText('The end.').waitFor();
      await page.getByLabel('Your question').fill('Still there?');
    });
  }
});
