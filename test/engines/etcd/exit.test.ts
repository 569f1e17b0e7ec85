/** The session of HTTP/2 and its socket are two things, and both have to go. */
import { testExit } from '../consensus/exit.js';

testExit('etcd');
