import { httpStatusWords } from '../feed/http-status-words.js';

/** The error of main's reply, in the form of OpenAI's API. */
export interface MainError {
  message: string;
  /** The field of the request that is wrong. */
  param?: string | null;
  code?: string | null;
}

/** Main's code for a prompt that leaves no room for an answer. */
export const PROMPT_TOO_LONG = 'context_length_exceeded';

/** Main refused a request. */
export class MainRefusal extends Error {
  /** Empty: no field of the request is named. */
  readonly field: string;
  /** Empty: none. */
  readonly code: string;

  constructor({ message, param, code }: MainError) {
    super(message);
    this.field = param ?? '';
    this.code = code ?? '';
  }
}

/** The error of a reply that is none of success, with main's own message where it has one. */
export async function refusalOf(reply: Response): Promise<MainRefusal> {
  const fallback = { message: httpStatusWords(reply.status) };
  try {
    const { error } = (await reply.json()) as { error?: Partial<MainError> };
    return new MainRefusal({ ...fallback, ...error });
  } catch {
    return new MainRefusal(fallback);
  }
}
