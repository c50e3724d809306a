import assert from 'node:assert/strict';
import { accessSync, constants, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { chromium, type BrowserContext, type BrowserContextOptions, type Page } from 'playwright-core';

const COMMANDS = ['chromium', 'chromium-browser', 'google-chrome'];
/** With these flags Chromium sends no requests of its own and stores no settings. */
const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-sync',
  '--disable-background-networking',
  '--disable-component-update',
];

/** The path of a browser, or undefined; then the tests in a browser are skipped. */
export function findBrowser(): string | undefined {
  const given = process.env.CHROME_PATH ?? '';
  const folders = (process.env.PATH ?? '').split(delimiter).filter((folder) => folder !== '');
  const paths = given !== '' ? [given] : COMMANDS.flatMap((command) => folders.map((folder) => join(folder, command)));
  return paths.find(isProgram);
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Chromium with a separate profile, and the faults that it found in the pages it opened. */
export class TestBrowser {
  private readonly wrong: string[] = [];

  private constructor(
    private readonly context: BrowserContext,
    private readonly profile: string,
  ) {}

  static async start(executablePath: string, options: BrowserContextOptions = {}): Promise<TestBrowser> {
    const profile = mkdtempSync(join(tmpdir(), 'odmoe-browser-'));
    const context = await chromium.launchPersistentContext(profile, { executablePath, args: FLAGS, ...options });
    return new TestBrowser(context, profile);
  }

  /** A new page at that address. Requests to other origins, errors in the console and violations of the policy are recorded. */
  async open(url: string): Promise<Page> {
    const page = await this.context.newPage();
    const { origin } = new URL(url);
    page.on('request', (request) => {
      const asked = request.url();
      if (!asked.startsWith('blob:') && !asked.startsWith('data:') && new URL(asked).origin !== origin) {
        this.wrong.push(`a request to another origin: ${asked}`);
      }
    });
    page.on('pageerror', (error) => this.wrong.push(`an error of the page: ${error.message}`));
    page.on('console', (message) => {
      // Violations of the content security policy are errors in the console, too.
      if (message.type() === 'error') this.wrong.push(`in the console: ${message.text()} (${message.location().url})`);
    });
    await page.goto(url);
    return page;
  }

  /** `expected`: errors in the console that the test itself causes. */
  assertNothingWrong(expected: readonly RegExp[] = []): void {
    const left = this.wrong.filter((words) => !expected.some((pattern) => pattern.test(words)));
    assert.deepEqual(left, []);
  }

  cookies(): ReturnType<BrowserContext['cookies']> {
    return this.context.cookies();
  }

  async close(): Promise<void> {
    await this.context.close();
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}
