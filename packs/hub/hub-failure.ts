import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { printableLine } from '../../shared/base/text/printable-text.js';

/** A request, for messages. */
export interface HubRequest {
  /** The repository's name. */
  readonly id: string;
  readonly revision: string;
  /** A file of the repository; null: the repository itself. */
  readonly file: string | null;
}

/** An answer that is no success. */
export interface RefusedAnswer {
  readonly status: number;
  /** The hub's own word for the reason (X-Error-Code); null: it gave none. */
  readonly reason: string | null;
}

/** The hub that was asked, and the token that was sent. */
export interface HubSender {
  readonly endpoint: string;
  /** The variable or file that holds the token; null: none was sent. */
  readonly tokenOrigin: string | null;
}

/** True if the same request may succeed later. Pure. */
export function mayPass(status: number): boolean {
  return status === 408 || status === 429 || status >= 500;
}

/** The error for an answer of the hub. It never holds a token, nor an address with a signature. Pure. */
export function hubRefusal(answer: RefusedAnswer, request: HubRequest, sender: HubSender): OdmoeError {
  const { status, reason } = answer;
  const { id, revision, file } = request;
  if (reason === 'GatedRepo') return gated(request, sender);
  if (reason === 'RevisionNotFound') {
    return new OdmoeError(
      'MODEL_NOT_FOUND',
      `${id}: the hub has no revision ${JSON.stringify(printableLine(revision))} of it; see ${sender.endpoint}/${id} for its branches and tags`,
    );
  }
  if (reason === 'EntryNotFound' && file !== null) {
    return new OdmoeError(
      'MODEL_NOT_FOUND',
      `${id}: the hub has no file ${printableLine(file)} in it; choose a repository that is whole`,
    );
  }
  if (reason === 'RepoNotFound' || status === 404) return absent(id, sender);
  if (status === 401 || status === 403) return unauthorized(id, status, sender);
  if (status === 429) {
    return new OdmoeError(
      'HUB_UNAVAILABLE',
      `${id}: the hub has had too many requests of this address, and asks to wait; run the same command later, which continues where this one stopped`,
    );
  }
  return new OdmoeError(
    'HUB_UNAVAILABLE',
    `${id}: ${sender.endpoint} answered with status ${status}; run the same command later, which continues where this one stopped`,
  );
}

/** The message for a store that refuses what the hub has sent it for. `sender`: the store and the hub in words, without the signed address. Pure. */
export function storeRefusal(status: number, { id, file }: HubRequest, sender: string): string {
  const reason = status === 429 ? 'too many requests, status 429' : `status ${status}`;
  return `${id}: ${sender} refuses ${file === null ? 'it' : printableLine(file)}: ${reason}; run the same command later, which continues where this one stopped`;
}

function gated({ id }: HubRequest, { endpoint, tokenOrigin }: HubSender): OdmoeError {
  const page = `${endpoint}/${id}`;
  const advice =
    tokenOrigin === null
      ? `accept its terms at ${page}, then set HF_TOKEN to a token of that account (${endpoint}/settings/tokens)`
      : `accept its terms at ${page} with the account whose token stands in ${tokenOrigin}, and let that token read gated repositories`;
  return new OdmoeError(
    'HUB_REFUSED',
    `${id}: its owner gives it only to those who have accepted its terms; ${advice}`,
  );
}

/** The hub says the same of a private repository and of one that there is not, so that nobody learns of private ones. */
function absent(id: string, { endpoint, tokenOrigin }: HubSender): OdmoeError {
  const advice =
    tokenOrigin === null
      ? 'check the name; if it is private, set HF_TOKEN to a token of an account that may read it'
      : `check the name, and whether the token in ${tokenOrigin} may read it`;
  return new OdmoeError('MODEL_NOT_FOUND', `${id}: ${endpoint} has no such model, or it is private; ${advice}`);
}

function unauthorized(id: string, status: number, { endpoint, tokenOrigin }: HubSender): OdmoeError {
  const what =
    tokenOrigin === null
      ? `${endpoint} wants to know who asks (status ${status}); set HF_TOKEN to a token of an account that may read it`
      : `${endpoint} does not accept the token in ${tokenOrigin} for it (status ${status}); make a new token that may read it, or leave it out`;
  return new OdmoeError('HUB_REFUSED', `${id}: ${what}`);
}
