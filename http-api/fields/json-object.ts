import { z } from 'zod';
import { issueText } from './issue-text.js';

/** An object that is passed on itself, not as a copy: the client's text for it is stored beside it (written-json). */
export const jsonObject = z.custom<Record<string, unknown>>(
  (given) => typeof given === 'object' && given !== null && !Array.isArray(given),
  {
    error: ({ input }) => issueText({ code: 'invalid_type', expected: 'object', input, path: [] }),
  },
);
