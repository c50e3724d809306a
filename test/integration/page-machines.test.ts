import assert from 'node:assert/strict';
import type { Page } from 'playwright-core';
import {
  DRAIN_WORDS,
  SAMPLE_CODE,
  SAMPLE_OPERATOR_KEY,
  SampleMachines,
  type SampleTrust,
} from '../dashboard/sample-machines.js';
import type { ClusterData } from '../../shared/wire/cluster-events.js';
import { pageLink } from '../../shared/wire/page-link.js';
import type { TestBrowser } from './harness/browser.js';
import { SampleSite, startBrowserOrSkip } from './harness/sample-site.js';

/** The narrowest screen on which the page must work. */
const NARROW = { width: 320, height: 640 };
const DESK = { width: 1440, height: 900 };
/** A browser writes refused requests into its console. */
const REFUSED = [/status of 40[013]/];
const WRONG_CODE = '111 111';

describe('the machines on the page in a browser, with invented cluster data,', function () {
  this.timeout(60_000);
  let sites: SampleSite[] = [];
  let browser: TestBrowser;
  let page: Page;

  before(async function () {
    browser = await startBrowserOrSkip(this, { viewport: DESK });
  });

  after(() => browser?.close());

  afterEach(async () => {
    await page.close();
    for (const site of sites) site.close();
    sites = [];
    browser.assertNothingWrong(REFUSED);
  });

  /** Returns the URL. */
  async function serve(
    trust: SampleTrust,
    key: string | null,
    changes: Partial<ClusterData> = {},
    machines = new SampleMachines(trust),
  ): Promise<string> {
    const site = await SampleSite.start({ key, machines, changes: () => changes });
    sites.push(site);
    return site.url;
  }

  async function open(
    trust: SampleTrust,
    changes: Partial<ClusterData> = {},
    machines?: SampleMachines,
  ): Promise<void> {
    page = await browser.open(`${await serve(trust, null, changes, machines)}/#machines`);
    await page.locator('.machines-view h1').waitFor();
  }

  const text = async (selector: string): Promise<string> => (await page.locator(selector).first().textContent()) ?? '';

  it('opens with the key of its link, which leaves the address at once, and asks for another one where main does not know it', async () => {
    const url = await serve('plain', 'a-key-of-main');
    page = await browser.open(pageLink(url, 'another-key'));
    await page.locator('#api-key').waitFor();
    assert.equal(page.url(), `${url}/`);
    await page.close();
    page = await browser.open(pageLink(url, 'a-key-of-main'));
    await page.locator('.view-cluster .card').first().waitFor();
    assert.equal(page.url(), `${url}/`);
  });

  it('shows an operator who waits and who is in, with the words of the authority', async () => {
    await open('operator');
    assert.match(await text('.machines-view'), /The cluster's words: amber fox lunar seven\./);
    const waiting = page.locator('[data-waiting="jetson-2"]');
    assert.equal(await waiting.textContent(), 'jetson-2 workercuda sm_87 · 192.168.1.21 · has waited 1 min 5 s');
    assert.match(
      await text('[data-machine="orin-1"]'),
      /^orin-1 worker.*Orin NX 16 GB · 192\.168\.1\.21:7602 · since 25 Nov 2026/,
    );
    assert.equal(await page.locator('[data-machine="desk"] button').count(), 0, 'main cannot be removed');
    await page.getByRole('link', { name: /^Machines/ }).waitFor();
    assert.equal(await text('.tab-count [aria-hidden]'), '2');
  });

  it('lets a machine in by its code, typed with a space, and says what to compare', async () => {
    await open('operator');
    const field = page.getByLabel("The six digits on the machine's screen");
    await field.fill(`${SAMPLE_CODE.slice(0, 3)} ${SAMPLE_CODE.slice(3)}`);
    await page.keyboard.press('Enter');
    await page.getByText(/jetson-2 \(worker, cuda sm_87, 192\.168\.1\.21\) is in the cluster/).waitFor();
    assert.match(await text('.machine-done:not(:empty)'), /it must show the words "amber fox lunar seven"/);
    assert.equal(await field.inputValue(), '');
    await page.locator('[data-machine="jetson-2"]').waitFor();
    assert.equal(await page.locator('[data-waiting="jetson-2"]').count(), 0);
  });

  it('says before the third wrong code what it does, and keeps what was typed', async () => {
    await open('operator');
    const field = page.getByLabel("The six digits on the machine's screen");
    const note = page.locator('#machine-code-note');
    assert.match((await note.textContent()) ?? '', /3 wrong codes send every waiting machine away/);
    for (const words of [/2 wrong codes send every/, /One more wrong code sends every waiting machine away/]) {
      await field.fill(WRONG_CODE);
      await page.getByRole('button', { name: 'Let it in' }).click();
      await note.filter({ hasText: words }).waitFor();
      assert.match(await text('.code-form [role="alert"]'), /^No machine with the code 111 111 waits\.$/);
      assert.equal(await field.inputValue(), WRONG_CODE);
    }
    await page.getByRole('button', { name: 'Let it in' }).click();
    await page.getByText('No machine waits.', { exact: false }).waitFor();
  });

  it('removes a machine when its name was typed, and not before', async () => {
    await open('operator');
    await page.getByRole('button', { name: 'Remove orin-1 …' }).click();
    const remove = page.getByRole('button', { name: 'Remove', exact: true });
    const field = page.getByLabel('To remove it, type its name: orin-1');
    await page.locator('#remove-orin-1:focus').waitFor();
    for (const typed of ['', 'orin', 'orin-11', 'jetson-2']) {
      await field.fill(typed);
      assert.ok(await remove.isDisabled(), typed);
    }
    await page.keyboard.press('Enter');
    assert.equal(await page.locator('[data-machine="orin-1"]').count(), 1);
    await field.fill('orin-1');
    await remove.click();
    await page.getByText('orin-1 was removed.').waitFor();
    await page.locator('[data-machine="orin-1"]').waitFor({ state: 'detached' });
    await page.locator('#machines-listed:focus').waitFor();
  });

  it('drains a machine after a question, by the keyboard alone, says what it waits for, and undoes it', async () => {
    await open('operator');
    await page.getByRole('button', { name: 'Drain orin-1 …' }).focus();
    await page.keyboard.press('Enter');
    await page.getByText(/orin-1 gets no new work\. Others take its experts over, and answers go on/).waitFor();
    await page.locator('[aria-label="Drain orin-1"]:focus').waitFor();
    assert.equal(await page.locator('[data-machine="orin-1"] .warn').count(), 0, 'a question changes nothing');
    await page.keyboard.press('Enter');
    await page.getByText(`orin-1 ${DRAIN_WORDS}.`).waitFor();
    assert.equal(await text('.machine-done:not(:empty)'), 'orin-1 gets no new work.');
    await page.locator('#machines-listed:focus').waitFor();
    assert.equal(await page.getByRole('button', { name: 'Drain orin-1' }).count(), 0);
    await page.getByRole('button', { name: 'Give orin-1 work again' }).focus();
    await page.keyboard.press('Space');
    await page.getByText('orin-1 gets work again.').waitFor();
    await page.getByRole('button', { name: 'Drain orin-1 …' }).waitFor();
    const drains = page.locator('.machine-drain');
    assert.equal(await drains.count(), 1, 'main, operators and machines that are not connected have no such button');
  });

  it('says why main does not drain a machine, and lets one ask again', async () => {
    const machines = new SampleMachines('operator');
    machines.refusesDrains = true;
    await open('operator', {}, machines);
    await page.getByRole('button', { name: 'Drain orin-1 …' }).click();
    await page.getByRole('button', { name: 'Drain orin-1', exact: true }).click();
    await page.getByText('No node "orin-1" is connected to main.').waitFor();
    machines.refusesDrains = false;
    await page.getByRole('button', { name: 'Drain orin-1', exact: true }).click();
    await page.getByText(`orin-1 ${DRAIN_WORDS}.`).waitFor();
  });

  it("tells who has no operator's key what to do, and shows who is in", async () => {
    await open('without-keys');
    const way = await text('.machines-waiting');
    assert.match(way, /2 machines wait to be let in.*odmoe accept CODE on main's host.*KEY role: operator/s);
    assert.equal(await page.locator('.machines-waiting input, [data-waiting], .machine-remove').count(), 0);
    assert.equal(await page.locator('[data-machine="orin-1"]').count(), 1);
  });

  it("is opened by an operator's key; a plain one is not enough", async () => {
    await open('plain');
    await page.getByLabel("Operator's key").fill('a-plain-key-1');
    await page.getByRole('button', { name: 'Open' }).click();
    await page.getByText("it is not an operator's", { exact: false }).waitFor();
    assert.equal(await page.locator('[data-waiting]').count(), 0);
    await page.getByLabel("Operator's key").fill(SAMPLE_OPERATOR_KEY);
    await page.getByRole('button', { name: 'Open' }).click();
    await page.locator('[data-waiting="jetson-2"]').waitFor();
    assert.equal(await page.getByLabel("Operator's key").count(), 0);
  });

  it('says that there is no authority, and warns on every view of a cluster that is open to strangers', async () => {
    await open('none', { isInsecure: true });
    assert.match(await text('.machines-view'), /no authority.*odmoe cluster init/s);
    for (const view of ['machines', 'cluster', 'chat']) {
      await page.goto(page.url().replace(/#.*$/, `#${view}`));
      await page.getByRole('complementary', { name: 'Warning' }).waitFor();
    }
    assert.match(await text('.insecure-note'), /^This cluster is insecure\. .*anybody on the network/);
    await page.close();
    await open('operator');
    assert.equal(await page.locator('.insecure-note').count(), 0);
  });

  for (const [what, trust] of [
    ['an operator', 'operator'],
    ['a plain key', 'plain'],
    ['no authority', 'none'],
  ] as const) {
    it(`fits a screen of 320 pixels, with ${what}`, async () => {
      await open(trust, { isInsecure: trust === 'none' });
      await page.setViewportSize(NARROW);
      const remove = page.getByRole('button', { name: 'Remove orin-1 …' });
      if (trust === 'operator') {
        await remove.click();
        await page.getByRole('button', { name: 'Drain orin-1 …' }).click();
      }
      const width = await page.evaluate<number>('document.documentElement.scrollWidth');
      assert.ok(width <= NARROW.width, `${width} pixels are wide`);
      const hidden = await page.evaluate<string[]>(
        "[...document.querySelectorAll('.tab, .button, .field')].filter((part) => part.getBoundingClientRect().right > innerWidth || part.scrollWidth > part.clientWidth + 1).map((part) => part.textContent)",
      );
      assert.deepEqual(hidden, []);
      await page.setViewportSize(DESK);
    });
  }

  it('has a name for each field and button, and headings in order', async () => {
    await open('operator');
    const unnamed = await page.evaluate<number>(
      "[...document.querySelectorAll('main input, main button')].filter((part) => (part.labels?.length ?? 0) === 0 && part.textContent.trim() === '' && !part.ariaLabel).length",
    );
    assert.equal(unnamed, 0);
    const headings = await page.evaluate<string[]>(
      "[...document.querySelectorAll('main h1, main h2, main h3')].map(({ tagName }) => tagName)",
    );
    assert.deepEqual(headings, ['H1', 'H2', 'H2']);
  });
});
