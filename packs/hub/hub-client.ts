import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { odmoeVersion } from '../../shared/base/files/odmoe-version.js';
import { onAbort } from '../../shared/base/runtime/living.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import { randomFraction, type Runtime } from '../../shared/base/runtime/runtime.js';
import { formatDuration } from '../../shared/base/text/units.js';
import { hubRefusal, type HubRequest, mayPass, storeRefusal } from './hub-failure.js';
import type { HubSnapshot } from './hub-repository.js';
import type { HubSettings, HubToken } from './hub-settings.js';
import { askedPauseMs, LONGEST_ASKED_MS, retryPauseMs, TRIES_LIMIT } from './retry-pauses.js';

/** The hub sends nothing for this long: the connection is given up. */
const SILENCE_MS = 30_000;
/** Most redirects of one request. */
const HOPS_LIMIT = 5;
/** Most bytes of an answer in JSON. */
const JSON_LIMIT_BYTES = 64 * 1024 * 1024;
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

/** A failure that may pass if the request is repeated. */
export class PassingFailure extends OdmoeError {
  constructor(
    message: string,
    /** The wait that the hub asked for; null: none. */
    readonly askedMs: number | null = null,
  ) {
    super('HUB_UNAVAILABLE', message);
  }
}

/** A piece of a file that begins to arrive. */
export interface HubBody {
  /** Offset of its first byte; 0 if the server sends the whole file, whatever was asked for. */
  readonly fromBytes: number;
  /** Bytes of the whole file, as the server says; null: it does not say. */
  readonly wholeBytes: number | null;
  /** Yields the bytes. Throws PassingFailure if the connection breaks. */
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Ends the transfer. Idempotent. Call it in any case. */
  close(): void;
}

/** An answer of the hub's API. */
export interface HubAnswer {
  readonly value: unknown;
  /** Path of the next page; null: this is the last one. */
  readonly nextPath: string | null;
}

export interface HubClientOptions {
  readonly settings: HubSettings;
  /** Null: requests are made without one. */
  readonly token: HubToken | null;
  readonly runtime: Runtime;
  readonly signal?: AbortSignal;
  /** Failures in a row before a request is given up; left out: TRIES_LIMIT. */
  readonly triesLimit?: number;
  /** Tells the user why something takes longer: before a pause, or where a file is downloaded again. */
  readonly tell?: (words: string) => void;
}

/** Asks a hub that speaks Hugging Face's protocol. The token goes to the hub's own origin only, and into no message. */
export class HubClient {
  constructor(private readonly options: HubClientOptions) {
    const { isOffline, endpoint } = options.settings;
    if (!isOffline) return;
    throw new OdmoeError(
      'HUB_UNAVAILABLE',
      `HF_HUB_OFFLINE is set, so ${endpoint} is not asked; unset it, or take a model that is here ("odmoe models")`,
    );
  }

  get endpoint(): string {
    return this.options.settings.endpoint;
  }

  tell(words: string): void {
    this.options.tell?.(words);
  }

  /** Asks with a client that also ends when nobody wants its answers any more. */
  async until<Result>(unwanted: AbortSignal, ask: (client: HubClient) => Promise<Result>): Promise<Result> {
    const { signal } = this.options;
    const either = new AbortController();
    const end = (): void => either.abort();
    const leaves = [onAbort(signal, end), onAbort(unwanted, end)];
    if (signal?.aborted === true || unwanted.aborted) end();
    try {
      return await ask(new HubClient({ ...this.options, signal: either.signal }));
    } finally {
      for (const leave of leaves) leave();
    }
  }

  /** Gets JSON of the API. @throws HUB_REFUSED, HUB_UNAVAILABLE, MODEL_NOT_FOUND, CANCELLED */
  async askJson(path: string, request: HubRequest): Promise<HubAnswer> {
    return this.withTries(request, () => this.askJsonOnce(path, request));
  }

  /**
   * Opens a file of a snapshot from `fromBytes` on. It does not try again by itself: a caller repeats it with what it has by then (withTries).
   * @throws PassingFailure, also where something else than the file answers, as the log-in of a network does; and as askJson
   */
  async openFile(
    snapshot: HubSnapshot,
    file: { readonly path: string; readonly sizeBytes: number },
    fromBytes: number,
  ): Promise<HubBody> {
    const { id, commit } = snapshot;
    const path = `/${id}/resolve/${commit}/${file.path.split('/').map(encodeURIComponent).join('/')}`;
    const request: HubRequest = { id, revision: commit, file: file.path };
    const transfer = new Transfer(this.options, request);
    try {
      const headers = fromBytes > 0 ? { range: `bytes=${fromBytes}-` } : {};
      const response = await this.follow(path, headers, transfer, request);
      const body = bodyOf(response, fromBytes, transfer);
      const other = otherAnswer(response, body, file.sizeBytes);
      if (other === null) return body;
      throw new PassingFailure(
        `${id}: ${transfer.sender} answers with ${other} instead of ${file.path}; something stands between (a log-in of the network, a proxy): log in, ` +
          'or check HF_ENDPOINT, then run the same command again, which continues where this one stopped',
      );
    } catch (thrown) {
      transfer.close();
      throw thrown;
    }
  }

  /** Repeats `work` after failures that may pass, with pauses; gives up after `triesLimit` failures without `hasProgress` between. */
  async withTries<Result>(
    { id }: HubRequest,
    work: () => Promise<Result>,
    hasProgress: () => boolean = () => false,
  ): Promise<Result> {
    const { runtime, signal, triesLimit = TRIES_LIMIT } = this.options;
    for (let failures = 0; ;) {
      this.requireWanted(id);
      try {
        return await work();
      } catch (thrown) {
        this.requireWanted(id);
        if (!(thrown instanceof PassingFailure)) throw thrown;
        failures = hasProgress() ? 1 : failures + 1;
        const { message, askedMs } = thrown;
        if (failures >= triesLimit || (askedMs ?? 0) > LONGEST_ASKED_MS) throw thrown;
        const pauseMs = retryPauseMs(failures, askedMs, randomFraction(runtime));
        this.tell(`${message.split(';')[0] ?? ''}; trying again in ${formatDuration(pauseMs)}`);
        await runtime.sleep(pauseMs, signal);
      }
    }
  }

  private async askJsonOnce(path: string, request: HubRequest): Promise<HubAnswer> {
    const transfer = new Transfer(this.options, request);
    try {
      const response = await this.follow(path, {}, transfer, request);
      const chunks: Uint8Array[] = [];
      let sizeBytes = 0;
      for await (const chunk of transfer.chunksOf(response)) {
        sizeBytes += chunk.length;
        if (sizeBytes > JSON_LIMIT_BYTES) throw this.strange(request, `sends more than ${JSON_LIMIT_BYTES} bytes`);
        chunks.push(chunk);
      }
      return {
        value: this.parse(Buffer.concat(chunks), request),
        nextPath: this.nextPath(response.headers.get('link')),
      };
    } finally {
      transfer.close();
    }
  }

  private parse(bytes: Uint8Array, request: HubRequest): unknown {
    try {
      return JSON.parse(new TextDecoder().decode(bytes)) as unknown;
    } catch {
      throw this.strange(request, 'does not answer with JSON');
    }
  }

  /** The error for an endpoint that is no hub, or behind a page that asks to log in. */
  strange({ id }: HubRequest, what: string): OdmoeError {
    return new OdmoeError(
      'HUB_UNAVAILABLE',
      `${id}: ${this.endpoint} ${what}; check HF_ENDPOINT and what stands between (a proxy, a log-in of the network)`,
    );
  }

  /** The path of a Link header's next page, if it is of the hub itself. */
  private nextPath(link: string | null): string | null {
    const target = /<([^>]+)>\s*;\s*rel="?next"?/.exec(link ?? '')?.[1];
    if (target === undefined) return null;
    const url = new URL(target, this.endpoint);
    const base = new URL(this.endpoint);
    // A mirror passes on the links of the original hub, so only the path counts.
    const path = url.pathname + url.search;
    return base.pathname !== '/' && path.startsWith(base.pathname) ? path.slice(base.pathname.length) : path;
  }

  /** Sends the request and follows redirects. The result has a status of success. */
  private async follow(
    path: string,
    headers: Readonly<Record<string, string>>,
    transfer: Transfer,
    request: HubRequest,
  ): Promise<Response> {
    const { token } = this.options;
    let url = new URL(this.endpoint + path);
    const { origin } = url;
    for (let hop = 0; hop <= HOPS_LIMIT; hop += 1) {
      const own = url.origin === origin;
      const authorization = token !== null && own ? { authorization: `Bearer ${token.secret}` } : {};
      const response = await transfer.send(url, { ...headers, ...authorization });
      if (response.ok) return response;
      await response.body?.cancel();
      const target = response.headers.get('location');
      if (!REDIRECTS.has(response.status) || target === null) throw this.refusal(response, own, transfer, request);
      if (!URL.canParse(target, url.href)) throw this.strange(request, 'sends to an address that is none');
      url = new URL(target, url);
      if (!['http:', 'https:'].includes(url.protocol))
        throw this.strange(request, `sends to an address by ${url.protocol}`);
    }
    throw this.strange(request, 'sends from one address to the next without an end');
  }

  /** The error for an answer. `own`: it came from the hub, not from a store to which the hub sent. */
  private refusal({ status, headers }: Response, own: boolean, { sender }: Transfer, request: HubRequest): OdmoeError {
    const askedMs = askedPauseMs(headers.get('retry-after'), headers.get('ratelimit'), this.options.runtime.wallMs());
    const passing = (message: string): PassingFailure =>
      new PassingFailure(message, status === 429 || status === 503 ? askedMs : null);
    // An address in a store is good for a time; the hub gives a new one.
    if (!own) return passing(storeRefusal(status, request, sender));
    const asked = { endpoint: this.endpoint, tokenOrigin: this.options.token?.origin ?? null };
    const error = hubRefusal({ status, reason: headers.get('x-error-code') }, request, asked);
    return mayPass(status) ? passing(error.message) : error;
  }

  private requireWanted(id: string): void {
    if (this.options.signal?.aborted !== true) return;
    throw new OdmoeError(
      'CANCELLED',
      `${id}: the download was interrupted; run the same command again to continue where it stopped`,
    );
  }
}

/** One request and its answer, which end together when nothing comes for a while or the user interrupts. */
class Transfer {
  private readonly controller = new AbortController();
  private readonly stopListening: () => void;
  private silence: ReturnType<typeof waitForPeer> | null = null;
  private isSilent = false;
  /** Who was asked last, in words: the hub, or a store to which it sent. */
  sender: string;

  constructor(
    private readonly options: HubClientOptions,
    private readonly request: HubRequest,
  ) {
    this.sender = options.settings.endpoint;
    this.stopListening = onAbort(options.signal, () => this.controller.abort());
    if (options.signal?.aborted === true) this.controller.abort();
  }

  async send(url: URL, headers: Readonly<Record<string, string>>): Promise<Response> {
    const { endpoint } = this.options.settings;
    // The path and the query of an address in a store are signed: nobody may see them.
    this.sender = url.origin === new URL(endpoint).origin ? endpoint : `${url.origin}, to which ${endpoint} sends,`;
    return this.failing(async () => {
      this.heard();
      return await fetch(url, {
        // Ranges count the bytes that are sent, so nothing may be compressed on the way.
        headers: { 'user-agent': `odmoe/${odmoeVersion()}`, 'accept-encoding': 'identity', ...headers },
        redirect: 'manual',
        signal: this.controller.signal,
      });
    });
  }

  async *chunksOf(response: Response): AsyncGenerator<Uint8Array> {
    if (response.body === null) return;
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    try {
      for (;;) {
        const { done, value } = await this.failing(() => reader.read());
        if (done) return;
        assertInvariant(value !== undefined, 'a piece of an answer has bytes.');
        this.hasHeard = true;
        yield value;
      }
    } finally {
      reader.releaseLock();
    }
  }

  close(): void {
    this.silence?.cancel();
    this.silence = null;
    this.stopListening();
    this.controller.abort();
  }

  /** Something has come since the last look. A look at intervals is cheaper than a new wait for each piece. */
  private hasHeard = false;

  private heard(): void {
    this.silence?.cancel();
    this.hasHeard = false;
    this.silence = waitForPeer(this.options.runtime, SILENCE_MS, () => {
      if (this.hasHeard) {
        this.heard();
        return;
      }
      this.isSilent = true;
      this.controller.abort();
    });
  }

  private async failing<Result>(work: () => Promise<Result>): Promise<Result> {
    try {
      return await work();
    } catch (thrown) {
      throw this.failure(thrown);
    }
  }

  private failure(thrown: unknown): PassingFailure {
    const { id, file } = this.request;
    const what = this.isSilent ? `sends nothing for ${formatDuration(SILENCE_MS)}` : connectionWords(thrown);
    const place = file === null ? id : `${id}: ${file}`;
    return new PassingFailure(
      `${place}: ${this.sender} ${what}; check the network, then run the same command again, which continues where this one stopped`,
    );
  }
}

/** The end of a connection in words. Texts of the HTTP library may hold a signed address, so only known codes are passed on. */
function connectionWords(thrown: unknown): string {
  const cause = thrown instanceof Error ? thrown.cause : undefined;
  const code = systemErrorCode(cause) || systemErrorCode(thrown);
  if (['ENOTFOUND', 'EAI_AGAIN'].includes(code))
    return `cannot be found (${code}: this machine finds no address of that name)`;
  if (code === 'ECONNREFUSED') return 'cannot be reached (ECONNREFUSED: nothing listens there)';
  if (/CERT|SELF_SIGNED|UNABLE_TO/.test(code))
    return `has a certificate that this machine does not accept (${code}; NODE_EXTRA_CA_CERTS adds one)`;
  return `cannot be reached, or the connection was cut${code === '' ? '' : ` (${code})`}`;
}

/** The part of the file that an answer holds. @throws PassingFailure */
function bodyOf(response: Response, askedBytes: number, transfer: Transfer): HubBody {
  const range = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(response.headers.get('content-range') ?? '');
  const isPart = response.status === 206 && range !== null;
  const length = response.headers.get('content-length');
  const fromBytes = isPart ? Number(range[1]) : 0;
  const total = isPart ? range[2] : length;
  return {
    // An answer that begins elsewhere than asked cannot be used; the whole file can.
    fromBytes: isPart && fromBytes !== askedBytes ? -1 : fromBytes,
    wholeBytes: total === null || total === undefined || total === '*' ? null : Number(total),
    chunks: transfer.chunksOf(response),
    close: () => transfer.close(),
  };
}

/** What answers in place of a file, in words; null: it is the file, as far as its type and its length say. No file of a model is a web page. */
function otherAnswer({ headers }: Response, { fromBytes, wholeBytes }: HubBody, sizeBytes: number): string | null {
  if (/^text\/html\b/i.test(headers.get('content-type') ?? '')) return 'a web page';
  // A part of a file with another length is of another file of the store: who has asked for it begins anew.
  return fromBytes === 0 && wholeBytes !== null && wholeBytes !== sizeBytes ? `${wholeBytes} bytes` : null;
}
