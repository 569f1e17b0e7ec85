import { expect, test } from 'vitest';
import { mysqlUrl } from '../../../../src/engines/mysql/url.js';
import { parseEngineUrl } from '../../../../src/kit/url.js';

const urlOf = (query: string): ReturnType<typeof mysqlUrl> =>
  mysqlUrl(parseEngineUrl(`mysql://localhost/app?${query}`));

test('certificates are files, and only with TLS', () => {
  expect(urlOf('tls=true').files).toEqual({});
  expect(urlOf('tls=true&ca=/a.pem&cert=/b.pem&key=/c.pem').files).toEqual({
    ca: '/a.pem',
    cert: '/b.pem',
    key: '/c.pem',
  });
  expect(() => urlOf('ca=/a.pem')).toThrow('tls=true');
  expect(() => urlOf('tls=true&cert=/b.pem')).toThrow("'cert' and 'key'");
});

test('several primaries are refused unless it is said otherwise', () => {
  expect(urlOf('').severalPrimaries).toBe('refuse');
  expect(urlOf('severalPrimaries=warn').severalPrimaries).toBe('warn');
  expect(() => urlOf('severalPrimaries=true')).toThrow("'refuse' or 'warn'");
});
