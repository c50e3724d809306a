/** The requests of machines that ask to be let in, checked where they enter. */
import type { z } from 'zod';
import {
  authorityReplySchema,
  ENROLMENT_PATHS,
  joinRequestSchema,
  pairReplySchema,
  pairRequestSchema,
  revealRequestSchema,
  waitReplySchema,
  waitRequestSchema,
  welcomeSchema,
  withdrawReplySchema,
  withdrawRequestSchema,
  type Sent,
  type Welcome,
} from '../../engine/trust/enrolment-messages.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { onAbort } from '../../shared/base/runtime/living.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { EnrolmentDesk } from './enrolment-desk.js';

/** A request on a connection. */
export interface EnrolmentRequest {
  readonly method: string;
  readonly path: string;
  /** The address of the machine. */
  readonly host: string;
  /** The export of its connection. */
  readonly exporter: Buffer;
  /** Aborts when the connection has ended. */
  readonly signal: AbortSignal;
  /** Reads the body. Throws REQUEST_TOO_LARGE. */
  body(): Promise<string>;
  /** True: the host may try once more. */
  mayTry(): boolean;
  /** Called when the request begins to wait for the operator. */
  waits(): void;
}

type Answer = (desk: EnrolmentDesk, request: EnrolmentRequest, log: Logger) => Promise<object>;

interface Route {
  readonly method: 'GET' | 'POST';
  readonly answer: Answer;
}

const ROUTES: Readonly<Record<string, Route>> = {
  [ENROLMENT_PATHS.authority]: { method: 'GET', answer: showAuthority },
  [ENROLMENT_PATHS.join]: { method: 'POST', answer: join },
  [ENROLMENT_PATHS.pair]: { method: 'POST', answer: beginPairing },
  [ENROLMENT_PATHS.reveal]: { method: 'POST', answer: reveal },
  [ENROLMENT_PATHS.wait]: { method: 'POST', answer: wait },
  [ENROLMENT_PATHS.withdraw]: { method: 'POST', answer: withdraw },
};

/** The reply to a request. Throws an OdmoeError whose words are for the machine, or what an own fault threw. */
export async function answerEnrolment(desk: EnrolmentDesk, request: EnrolmentRequest, log: Logger): Promise<object> {
  const route = Object.hasOwn(ROUTES, request.path) ? ROUTES[request.path] : undefined;
  if (route === undefined) throw new OdmoeError('ROUTE_UNKNOWN', 'main serves nothing at this path of its enrolment');
  if (request.method !== route.method) {
    throw new OdmoeError('METHOD_UNKNOWN', `this path of main's enrolment is for ${route.method} alone`);
  }
  return route.answer(desk, request, log);
}

function showAuthority(desk: EnrolmentDesk): Promise<Sent<typeof authorityReplySchema>> {
  return Promise.resolve({ authority: desk.authority.toString('base64') });
}

async function join(desk: EnrolmentDesk, request: EnrolmentRequest, log: Logger): Promise<Sent<typeof welcomeSchema>> {
  countTry(request);
  const { exporter, host } = request;
  const message = await bodyOf(request, joinRequestSchema);
  const welcome = await desk.join({ ...message, exporter });
  const { id, role, tokenId } = message;
  log.info('a machine has joined by a token', { id, role, token: tokenId, peer: host });
  return sentWelcome(welcome);
}

async function beginPairing(desk: EnrolmentDesk, request: EnrolmentRequest): Promise<Sent<typeof pairReplySchema>> {
  countTry(request);
  const { host, exporter } = request;
  const message = await bodyOf(request, pairRequestSchema);
  const { pairingId, mainNonce } = desk.beginPairing({ ...message, exporter, address: host });
  if (request.signal.aborted) desk.endConnection(pairingId);
  onAbort(request.signal, () => desk.endConnection(pairingId));
  return { pairingId, nonce: mainNonce.toString('base64'), authority: desk.authority.toString('base64') };
}

/** No try of its own: it goes on with the one that began, on its connection. A machine could otherwise begin for ever and never reveal. */
async function reveal(
  desk: EnrolmentDesk,
  request: EnrolmentRequest,
  log: Logger,
): Promise<Sent<typeof waitReplySchema>> {
  const { pairingId, ...revealed } = await bodyOf(request, revealRequestSchema);
  const { id, role, welcome } = desk.revealPairing(pairingId, { ...revealed, exporter: request.exporter });
  const machine = { id, role, peer: request.host };
  if (welcome === null) {
    // The operator has to do something.
    log.warn('a machine wants in: type the code that it shows (odmoe accept CODE)', machine);
    return { state: 'waiting' };
  }
  log.info('a machine that was let in before has its certificate again: no code is needed', machine);
  return sentWelcome(welcome);
}

async function wait(desk: EnrolmentDesk, request: EnrolmentRequest): Promise<Sent<typeof waitReplySchema>> {
  const { pairingId } = await bodyOf(request, waitRequestSchema);
  const welcome = await desk.waitForDecision(pairingId, request.signal, () => request.waits());
  return welcome === null ? { state: 'waiting' } : sentWelcome(welcome);
}

async function withdraw(
  desk: EnrolmentDesk,
  request: EnrolmentRequest,
  log: Logger,
): Promise<Sent<typeof withdrawReplySchema>> {
  const { pairingId } = await bodyOf(request, withdrawRequestSchema);
  const id = desk.withdraw(pairingId);
  if (id !== null) log.info('a machine that wanted in was stopped before it was let in', { id, peer: request.host });
  return { state: 'withdrawn' };
}

function sentWelcome({ state, cluster, authority, certificate, roster }: Welcome): Sent<typeof welcomeSchema> {
  return {
    state,
    cluster,
    authority: authority.toString('base64'),
    certificate: certificate.toString('base64'),
    roster: roster.toString('base64'),
  };
}

function countTry(request: EnrolmentRequest): void {
  if (!request.mayTry()) {
    throw new OdmoeError('QUEUE_FULL', `${request.host} has tried too often to be let in: try again in a minute`);
  }
}

/** The message in the body. What is wrong with it is said without its values, as they may be secret. */
async function bodyOf<Schema extends z.ZodType>(request: EnrolmentRequest, schema: Schema): Promise<z.output<Schema>> {
  const parsed = schema.safeParse(jsonOf(await request.body()));
  if (parsed.success) return parsed.data;
  const field = parsed.error.issues[0]?.path.join('.') ?? '';
  const where = field === '' ? 'the request' : `"${field}" of the request`;
  throw new OdmoeError('REQUEST_INVALID', `${where} is not as main takes it: use odmoe of the same version`);
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new OdmoeError('REQUEST_INVALID', 'the body of the request is not JSON: use odmoe of the same version');
  }
}
