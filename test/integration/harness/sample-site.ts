/** The page with an invented cluster, for tests in a browser. */
import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Context } from 'mocha';
import type { BrowserContextOptions } from 'playwright-core';
import { SampleMachines } from '../../dashboard/sample-machines.js';
import { type SampleOptions, sampleServer } from '../../dashboard/sample-server.js';
import { findBrowser, TestBrowser } from './browser.js';

/** A server of the page, which an operator may open without a key unless the options say otherwise. */
export class SampleSite {
  private constructor(
    private readonly server: Server,
    readonly port: number,
  ) {}

  /** `port`: 0: any free one. */
  static async start(options: Partial<SampleOptions> = {}, port = 0): Promise<SampleSite> {
    const server = sampleServer({
      alone: false,
      key: null,
      halfway: () => Promise.resolve(),
      machines: new SampleMachines('operator'),
      ...options,
    });
    await once(server.listen(port, '127.0.0.1'), 'listening');
    return new SampleSite(server, (server.address() as AddressInfo).port);
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  close(): void {
    this.server.closeAllConnections();
    this.server.close();
  }
}

/** Starts Chromium; call this in a hook. Without one, the tests of the suite are skipped. */
export function startBrowserOrSkip(context: Context, options: BrowserContextOptions): Promise<TestBrowser> {
  const path = findBrowser();
  if (path !== undefined) return TestBrowser.start(path, options);
  process.stdout.write('    skipped: no Chromium in the PATH, and CHROME_PATH names none\n');
  return context.skip();
}
