import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { TestBrowser } from '../integration/harness/browser.js';
import { RunningDemo } from '../integration/harness/running-demo.js';
import { waitUntil } from '../integration/harness/wait-until.js';

const DESK = { width: 1280, height: 1010 };
const DIAGRAM = { width: 1440, height: 960 };
const CONVERSATION = { width: 1100, height: 720 };
const PHONE = { width: 390, height: 844 };
const PHONE_SCALE = 1.5;
/** Git keeps every picture that was ever committed. */
const MOST_BYTES = 200_000;
const DEMO_LIMIT_MS = 420_000;
const PATIENCE_MS = 120_000;
/** The charts need some time of answers. */
const BUSY_MS = 75_000;
const CLIENTS = 3;
const KILLED = 'worker-4';
const QUESTIONS = ['Tell me a story about a fox.', 'Tell me a story about an owl.', 'What is 17 plus 25?'];
const DRAWN_MS = 700;
/** The least likely tokens of an answer. */
const UNSURE_TOKEN = '.token-4[data-token]';

interface Camera {
  desk: TestBrowser;
  phone: TestBrowser;
  url: string;
  out: string;
}

/** Draws the seven pictures of a demo cluster into `out`, and returns their names. `browser`: the path of Chromium. */
export async function drawPictures(browser: string, out: string): Promise<string[]> {
  const home = mkdtempSync(join(tmpdir(), 'odmoe-pictures-'));
  const flags = ['--serve', '--json', '--http', '127.0.0.1:0', '--workers', '8'];
  const environment = { HOME: home, XDG_STATE_HOME: join(home, 'state'), XDG_DATA_HOME: join(home, 'data') };
  const demo = new RunningDemo(flags, environment, DEMO_LIMIT_MS);
  const desk = await TestBrowser.start(browser, { viewport: DESK });
  const phone = await TestBrowser.start(browser, { viewport: PHONE, deviceScaleFactor: PHONE_SCALE });
  try {
    const camera = { desk, phone, url: await urlOf(demo), out };
    const stop = new AbortController();
    const clients = Promise.all(
      QUESTIONS.slice(0, CLIENTS).map((question) => askOn(camera.url, question, stop.signal)),
    );
    try {
      await pause(BUSY_MS);
      return [...(await picturesOfWork(camera)), ...(await picturesOfChat(camera)), await pictureOfLoss(camera, demo)];
    } finally {
      stop.abort();
      await clients;
    }
  } finally {
    await Promise.all([desk.close(), phone.close()]);
    demo.child.kill('SIGTERM');
    await demo.outcome;
    rmSync(home, { recursive: true, force: true });
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resume) => setTimeout(resume, ms));
}

async function urlOf(demo: RunningDemo): Promise<string> {
  let url = '';
  await waitUntil('the demo serves', () => {
    const line = demo.printed.split('\n').find((each) => each.includes('"url"'));
    if (line !== undefined) url = (JSON.parse(line) as { url: string }).url;
    if (demo.child.exitCode !== null) throw new Error(`the demo has ended: ${demo.said}`);
    return url !== '';
  });
  return new URL(url).origin;
}

/** Asks again and again until `signal`: the cluster has something to do. */
async function askOn(url: string, question: string, signal: AbortSignal): Promise<void> {
  const body = JSON.stringify({ model: 'demo', messages: [{ role: 'user', content: question }], max_tokens: 160 });
  const headers = { 'content-type': 'application/json' };
  while (!signal.aborted) {
    try {
      const answer = await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body, signal });
      await answer.arrayBuffer();
    } catch (thrown) {
      if (!signal.aborted) throw thrown;
    }
  }
}

async function open(
  browser: TestBrowser,
  { url }: Camera,
  view: string,
  colorScheme: 'light' | 'dark',
  viewport: { width: number; height: number },
): Promise<Page> {
  const page = await browser.open(`${url}/#${view}`);
  page.setDefaultTimeout(PATIENCE_MS);
  await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
  await page.setViewportSize(viewport);
  // The page looks for the scheme once, when it is loaded.
  await page.reload();
  return page;
}

/** Waits until charts are drawn, takes the picture, and closes the page. Throws where it takes too many bytes. */
async function take(page: Page, { out }: Camera, name: string): Promise<string> {
  await pause(DRAWN_MS);
  const path = join(out, name);
  await page.screenshot({ path, animations: 'disabled', caret: 'hide' });
  await page.close();
  const { size } = statSync(path);
  if (size > MOST_BYTES) throw new Error(`${name} takes ${size} bytes, and at most ${MOST_BYTES} are allowed`);
  return name;
}

/** Scrolls so that the element is a little below the upper edge. */
async function scrollTo(page: Page, selector: string): Promise<void> {
  await page.locator(selector).first().waitFor();
  await page.evaluate(`document.querySelector('${selector}').scrollIntoView(); scrollBy(0, -16)`);
}

async function picturesOfWork(camera: Camera): Promise<string[]> {
  const { desk } = camera;
  const cluster = await open(desk, camera, 'cluster', 'light', DESK);
  await cluster.locator('[data-node="worker-8"][data-state="up"]').waitFor();
  const taken = [await take(cluster, camera, 'cluster-light.png')];
  const time = await open(desk, camera, 'time', 'dark', DESK);
  await time.getByText('Experts by layer').waitFor();
  taken.push(await take(time, camera, 'time-dark.png'));
  for (const { name, scheme, viewport } of [
    { name: 'token-light.png', scheme: 'light', viewport: DIAGRAM },
    { name: 'token-phone-dark.png', scheme: 'dark', viewport: PHONE },
  ] as const) {
    const token = await open(desk, camera, 'token', scheme, viewport);
    await token.locator('.timing-svg rect[data-bar]').first().waitFor();
    if (viewport === PHONE) await scrollTo(token, '.timing-svg');
    taken.push(await take(token, camera, name));
  }
  return taken;
}

async function picturesOfChat(camera: Camera): Promise<string[]> {
  const light = await open(camera.desk, camera, 'chat', 'light', CONVERSATION);
  for (const [index, question] of QUESTIONS.slice(0, 2).entries()) await ask(light, question, index);
  const answer = light.locator('.turn-answer').last();
  const unsure = answer.locator(UNSURE_TOKEN);
  if ((await unsure.count()) > 0) await unsure.first().hover();
  const taken = [await take(light, camera, 'chat-light.png')];
  const phone = await open(camera.phone, camera, 'chat', 'light', PHONE);
  await ask(phone, QUESTIONS[0] ?? '', 0);
  return [...taken, await take(phone, camera, 'chat-phone-light.png')];
}

async function ask(page: Page, question: string, index: number): Promise<void> {
  await page.getByLabel('Your question').fill(question);
  await page.keyboard.press('Enter');
  await page.locator('.turn-answer[data-state="done"]').nth(index).waitFor();
}

/** A worker is killed, and the page says so. */
async function pictureOfLoss(camera: Camera, demo: RunningDemo): Promise<string> {
  demo.killDaemon(KILLED);
  const page = await open(camera.phone, camera, 'cluster', 'dark', PHONE);
  await page.locator(`[data-node="${KILLED}"][data-state="lost"]`).waitFor();
  await scrollTo(page, '.problem');
  return take(page, camera, 'cluster-phone-dark.png');
}
